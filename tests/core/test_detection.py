"""Which command tests a project."""

from __future__ import annotations

import pytest

from capsule.core.detection import ANY_TESTS, Detection, TreeFiles, detect, globs_for


def snapshot(files: dict[str, str]) -> TreeFiles:
    return TreeFiles(frozenset(files), lambda path: files.get(path, ""))


PROJECTS: dict[str, tuple[dict[str, str], str]] = {
    "pytest by its file": ({"pytest.ini": "", "Makefile": "test:\n"}, "python3 -m pytest -q"),
    "pytest by its settings": ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest -q"),
    "pytest by a conftest": ({"tests/conftest.py": ""}, "python3 -m pytest -q"),
    "a package of unittests": ({"tests/__init__.py": "", "tests/test_a.py": ""}, "python3 -m unittest discover"),
    "loose unittests": ({"tests/test_a.py": ""}, "python3 -m unittest discover -s tests"),
    "go": ({"go.mod": "module x\n"}, "go test ./..."),
    "cargo": ({"Cargo.toml": ""}, "cargo test"),
    "npm": ({"package.json": '{"scripts": {"test": "jest"}}'}, "npm test"),
    "node's own runner": (
        {"package.json": "{}", "test/a.test.js": "const test = require('node:test');\n"},
        "node --test",
    ),
    "node beside another project": (
        {"api/go.mod": "", "web/package.json": "{}", "web/test/a.test.js": "import test from 'node:test';\n"},
        "(cd api && go test ./...) && (cd web && node --test)",
    ),
    "node in a package with its own script": (
        {
            "package.json": "{}",
            "web/package.json": '{"scripts": {"test": "node --test --strict"}}',
            "web/a.test.js": "import test from 'node:test';\n",
        },
        "cd web && npm test",
    ),
    "node in workspaces without scripts": (
        {
            "package.json": '{"workspaces": ["a"]}',
            "a/package.json": "{}",
            "a/a.test.js": "import test from 'node:test';\n",
        },
        "node --test",
    ),
    "make": ({"Makefile": "build:\n\ntest: build\n\t./run\n"}, "make test"),
    "make by its other name": ({"GNUmakefile": "test:\n\t./run\n"}, "make test"),
    "make, one of two targets": ({"Makefile": "check test: build\n\t./run\n"}, "make test"),
    "tests that are functions": ({"tests/test_a.py": "def test_a():\n    pass\n"}, "python3 -m pytest -q"),
    "tests that name pytest": ({"pkg/__init__.py": "", "pkg/test_a.py": "import pytest\n"}, "python3 -m pytest -q"),
    "unittests in packages": ({"pkg/__init__.py": "", "pkg/tests.py": ""}, "python3 -m unittest discover"),
    "a capital folder": ({"Tests/test_a.py": ""}, "python3 -m unittest discover -s Tests"),
    "npm workspaces": (
        {"package.json": '{"workspaces": ["a"]}', "a/package.json": '{"scripts": {"test": "jest"}}'},
        "npm test --workspaces --if-present",
    ),
    "deno": ({"deno.json": "{}"}, "deno test"),
    "deno, by a task": ({"deno.json": '{"tasks": {"test": "deno test -A"}}'}, "deno task test"),
    "maven": ({"pom.xml": ""}, "mvn -B test"),
    "maven, by its wrapper": ({"pom.xml": "", "mvnw": ""}, "./mvnw -B test"),
    "gradle": ({"build.gradle.kts": "", "gradlew": ""}, "./gradlew --no-daemon test"),
    "mix": ({"mix.exs": ""}, "mix test"),
    "rspec": ({"Gemfile": "", "spec/a_spec.rb": ""}, "bundle exec rspec"),
    "minitest": ({"Gemfile": "", "Rakefile": "", "test/a_test.rb": ""}, "bundle exec rake test"),
    "composer": ({"composer.json": '{"scripts": {"test": "phpunit"}}'}, "composer test"),
    "phpunit": ({"composer.json": "{}", "phpunit.xml.dist": ""}, "vendor/bin/phpunit"),
    "dotnet": (
        {"all.sln": "", "a.Tests/a.Tests.csproj": '<PackageReference Include="Microsoft.NET.Test.Sdk" />'},
        "dotnet test",
    ),
    "ctest": (
        {"CMakeLists.txt": "project(x)\nenable_testing()\n"},
        "cmake -S . -B build && cmake --build build && ctest --test-dir build --output-on-failure",
    ),
    "a package that is also a workspace": (
        {"Cargo.toml": "[workspace]\nmembers = ['a']\n\n[package]\nname = 'r'\n", "a/Cargo.toml": ""},
        "cargo test --workspace",
    ),
    "a workspace of packages": ({"Cargo.toml": "[workspace]\nmembers = ['a']\n", "a/Cargo.toml": ""}, "cargo test"),
    "a workspace of go modules": (
        {"go.work": "use ./a\nuse ./b\n", "a/go.mod": "", "b/go.mod": ""},
        "(cd a && go test ./...) && (cd b && go test ./...)",
    ),
    "packages of pnpm": (
        {"package.json": "{}", "pnpm-workspace.yaml": "", "packages/a/package.json": '{"scripts": {"test": "vitest"}}'},
        "cd packages/a && npm test",
    ),
    "yarn without node_modules": ({"package.json": '{"scripts": {"test": "jest"}}', ".pnp.cjs": ""}, "yarn test"),
    "vitest, by no script": (
        {"package.json": '{"devDependencies": {"vitest": "4"}}', "a.test.ts": ""},
        "npx --no vitest run",
    ),
    "jest, by no script": (
        {"package.json": '{"devDependencies": {"jest": "30"}}', "src/a.spec.js": ""},
        "npx --no jest",
    ),
    "poetry": (
        {"pyproject.toml": "[tool.poetry]\n", "poetry.lock": "", "tests/test_a.py": "def test_a():\n    pass\n"},
        "python3 -m pytest -q",
    ),
    "uv": (
        {"pyproject.toml": "[project]\n", "uv.lock": "", "tests/test_a.py": "import pytest\n"},
        "python3 -m pytest -q",
    ),
    "django": (
        {"manage.py": "os.environ['DJANGO_SETTINGS_MODULE'] = 'x'\n", "app/__init__.py": "", "app/tests.py": ""},
        "python3 manage.py test",
    ),
    "django below the top": (
        {"backend/manage.py": "DJANGO_SETTINGS_MODULE", "backend/app/tests.py": ""},
        "cd backend && python3 manage.py test",
    ),
    "django by pytest": ({"manage.py": "DJANGO_SETTINGS_MODULE", "pytest.ini": ""}, "python3 -m pytest -q"),
    "make that calls another target": (
        {"Makefile": "test: unit\n\nunit:\n\tpython3 -m unittest\n", "tests/test_a.py": ""},
        "make test",
    ),
    "just": ({"justfile": "build:\n    x\n\ntest filter='':\n    ./run\n"}, "just test"),
    "just, around go": ({"justfile": "test:\n    go test\n", "go.mod": ""}, "go test ./..."),
    "task": (
        {"Taskfile.yml": "version: '3'\n\ntasks:\n  build:\n    cmds: [x]\n  test:\n    cmds: [y]\n"},
        "task test",
    ),
    "rspec without a Gemfile": ({"lib/a.rb": "", "spec/a_spec.rb": ""}, "rspec"),
    "rake without a Gemfile": ({"Rakefile": "", "test/test_a.rb": ""}, "rake test"),
    "composer, a list": ({"composer.json": '{"scripts": {"test": ["@php vendor/bin/phpunit"]}}'}, "composer test"),
    "phpunit by its package": (
        {"composer.json": '{"require-dev": {"phpunit/phpunit": "^11"}}', "tests/ATest.php": ""},
        "vendor/bin/phpunit tests",
    ),
    "pest": ({"composer.json": '{"require-dev": {"pestphp/pest": "^3"}}', "phpunit.xml": ""}, "vendor/bin/pest"),
    "deno, with comments": ({"deno.jsonc": '{\n  // tasks\n  "tasks": {"test": "deno test"}\n}'}, "deno task test"),
    "dotnet, in a folder of tests": (
        {"src/a/a.csproj": "", "tests/a.Tests/a.Tests.csproj": '<PackageReference Include="Microsoft.NET.Test.Sdk" />'},
        "dotnet test tests/a.Tests/a.Tests.csproj",
    ),
    "dotnet below the top": (
        {"api/a.sln": "", "api/T/T.csproj": '<Project Sdk="MSTest.Sdk/3.6">', "web/package.json": "{}"},
        "cd api && dotnet test",
    ),
    "gradle, a folder of projects": (
        {"settings.gradle.kts": "", "app/build.gradle.kts": ""},
        "gradle --no-daemon test",
    ),
    "maven below the top": ({"server/pom.xml": ""}, "cd server && mvn -B test"),
    "below the top": ({"README.md": "", "backend/pytest.ini": ""}, "cd backend && python3 -m pytest -q"),
    "unittests below the top": (
        {"backend/tests/__init__.py": "", "backend/tests/test_a.py": ""},
        "cd backend && python3 -m unittest discover",
    ),
    "go below the top": ({"src/go.mod": "module x\n"}, "cd src && go test ./..."),
    "two below the top": (
        {"api/go.mod": "", "web app/package.json": '{"scripts": {"test": "jest"}}'},
        "(cd api && go test ./...) && (cd 'web app' && npm test)",
    ),
    "the topmost only": ({"api/go.mod": "", "api/tools/go.mod": "", "apis/x.go": ""}, "cd api && go test ./..."),
    "the top alone": ({"go.mod": "", "web/package.json": '{"scripts": {"test": "jest"}}'}, "go test ./..."),
}
NOTHING = {
    "no files": {},
    "npm's placeholder": {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'},
    "a makefile without tests": {"Makefile": "testing:\ntest := 1\n"},
    "python without tests": {"src/app.py": "", "latest.py": ""},
    "a broken package.json": {"package.json": "{"},
    "cmake without tests": {"CMakeLists.txt": "project(x)\n"},
    "a solution without tests": {"all.sln": "", "a/a.csproj": ""},
    "tests of vendored code": {"vendor/x/go.mod": "", "node_modules/y/package.json": '{"scripts": {"test": "jest"}}'},
    "a Gemfile without tests": {"Gemfile": "gem 'rails'\n", "Rakefile": "", "app/a.rb": ""},
    "composer without tests": {"composer.json": '{"require-dev": {"phpunit/phpunit": "^11"}}'},
    "a justfile without tests": {"justfile": "tests:\n    x\ntest := 'y'\n"},
    "jest without tests": {"package.json": '{"devDependencies": {"jest": "30"}}'},
    "an example": {"examples/web/package.json": '{"scripts": {"test": "jest"}}'},
    "a project among fixtures": {"tests/fixtures/go.mod": ""},
}


@pytest.mark.promise("evidence.detection")
@pytest.mark.parametrize(("files", "command"), PROJECTS.values(), ids=PROJECTS.keys())
def test_a_projects_test_command_is_found(files: dict[str, str], command: str) -> None:
    assert detect(snapshot(files)).command == command


@pytest.mark.parametrize("files", NOTHING.values(), ids=NOTHING.keys())
def test_where_there_is_none_none_is_made_up(files: dict[str, str]) -> None:
    assert detect(snapshot(files)) == Detection()


def test_a_command_from_the_settings_brings_its_ecosystems_globs() -> None:
    assert "*_test.go" in globs_for("go test ./pkg/...", snapshot({}))[0]
    assert globs_for("cargo test --all", snapshot({}))[1] is True
    assert "test_*.py" in globs_for("uv run pytest -x", snapshot({}))[0]
    assert globs_for("./check", snapshot({})) == (ANY_TESTS, False)
    assert "*_test.go" in globs_for("./check", snapshot({"go.mod": ""}))[0]
