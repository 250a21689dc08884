"""Canaries: tests that have to fail, set among new ones."""

from __future__ import annotations

import pytest

from capsule.core.canary import canary, old_test_files, silent
from capsule.core.proof import Baseline
from capsule.core.test_report import Result, TestReport, read_report

HEAD = "int clamp(int n, int low, int high);\nint main(void) {\n    "


@pytest.mark.parametrize(
    ("path", "asks", "changed"),
    [
        ("a.c", "if (clamp(5, 0, 3) != 3) return 1;", "if (clamp(5, 0, 3) != 4) return 1;"),
        ("a.c", "if (clamp(5, 0, 3) != 3) { fprintf(stderr, 0); exit(2); }", "!= 4"),
        ("a.c", "assert(clamp(5, 0, 3) == 3);", "assert(clamp(5, 0, 3) == 4);"),
        ("a.c", "assert(ok && clamp(5, 0, 3) == 3);", "assert(ok && clamp(5, 0, 3) == 4);"),
        ("a.c", "ck_assert_int_eq(clamp(5, 0, 3), 3);", "ck_assert_int_eq(clamp(5, 0, 3), 4);"),
        ("a.cc", "EXPECT_EQ(clamp(5, 0, 3), 3);", "EXPECT_EQ(clamp(5, 0, 3), 4);"),
        ("a.cpp", "REQUIRE(clamp(5, 0, 3) == 3);", "REQUIRE(clamp(5, 0, 3) == 4);"),
        ("a.cpp", "if (clamp(5, 0, 3) != 3) return 1;", "!= 4"),
        ("a.c", "TEST_ASSERT_EQUAL(3, clamp(5, 0, 3));", "TEST_ASSERT_EQUAL(4, clamp(5, 0, 3));"),
    ],
)
def test_a_program_gets_another_expected_value(path: str, asks: str, changed: str) -> None:
    found = canary(path, f"{HEAD}{asks}\n    return 0;\n}}\n".encode(), "mark", {"clamp"})
    assert found is not None
    assert changed.encode() in found[1]


@pytest.mark.parametrize(
    "asks",
    [
        "if (argc == 2) return 0;",
        "if (clamp(5, 0, 3) != 3) return 0;",
        "if (clamp(5, 0, 3) != 3 && more != 2) return 1;",
        "assert(clamp(5, 0, 3) == 3 || clamp(5, 0, 3) == 2);",
        "EXPECT_NE(clamp(5, 0, 3), 3);",
    ],
)
def test_what_a_program_does_not_insist_on_is_no_expected_value(asks: str) -> None:
    assert canary("a.c", f"{HEAD}{asks}\n    return 0;\n}}\n".encode(), "mark", {"clamp"}) is None


def test_a_program_with_another_expected_value_has_to_fail_by_the_name_of_a_new_test() -> None:
    made = canary("a.c", f"{HEAD}if (clamp(5, 0, 3) != 3) return 1;\n}}\n".encode(), "mark", {"clamp"})
    assert made is not None
    lines, fresh = made[0].lines, ["ctest::clamp"]
    failed = TestReport({"ctest::clamp": Result.FAILED, "ctest::add": Result.PASSED}, complete=True)
    forged = TestReport({"ctest::clamp": Result.PASSED, "ctest::add": Result.FAILED}, complete=True)
    assert silent(lines, failed, fresh) == []
    assert silent(lines, forged, fresh) == ["a.c did not fail with another expected value (`3` → `4`)"]


@pytest.mark.parametrize(
    ("path", "test", "source", "changed"),
    [
        (
            "spec/calc_spec.rb",
            "clamps",
            'RSpec.describe "calc" do\n  it "clamps" do\n    expect(clamp(5, 0, 3)).to eq(3)\n  end\nend\n',
            "to eq(4)",
        ),
        (
            "tests/CalcTest.php",
            "testClamps",
            "<?php\nclass CalcTest extends TestCase {\n    public function testClamps(): void {\n"
            "        $this->assertSame(3, clamp(5, 0, 3));\n    }\n}\n",
            "assertSame(4,",
        ),
        (
            "calc_test.ts",
            "clamps",
            'Deno.test("clamps", () => {\n  assertEquals(clamp(5, 0, 3), 3);\n});\n',
            "clamp(5, 0, 3), 4)",
        ),
    ],
)
def test_a_new_test_file_gets_a_failing_test_and_another_expected_value(
    path: str, test: str, source: str, changed: str
) -> None:
    found = canary(path, source.encode(), "mark", {test})
    assert found is not None
    made, text = found
    assert [name for name, _ in made.changed] == [test]
    assert (changed in text.decode(), text.decode().count("mark") >= 2) == (True, True)


@pytest.mark.parametrize(
    "asks",
    ["expect(clamp(5, 0, 3)).not_to eq(4)", "expect(clamp(5, 0, 3)).to eq(3).or eq(4)", "double(clamp: 3).eq(3)"],
)
def test_what_a_matcher_does_not_insist_on_is_no_expected_value(asks: str) -> None:
    source = f'RSpec.describe "calc" do\n  it "clamps" do\n    {asks}\n  end\nend\n'
    found = canary("spec/calc_spec.rb", source.encode(), "mark", {"clamps"})
    assert found is not None
    assert (found[0].appended, found[0].changed) == ("mark", ())


def test_a_spec_for_another_framework_has_no_canary() -> None:
    source = 'require "minitest/autorun"\ndescribe "calc" do\n  it "clamps" do\n    _(1).must_equal 1\n  end\nend\n'
    assert canary("spec/calc_spec.rb", source.encode(), "mark", {"clamps"}) is None


NEXTEST = """ Nextest run ID 1 with nextest profile: default
        {0} [   0.005s] (1/2) calc::clamp clamps
        {0} [   0.004s] (2/2) calc::clamp mark::fails
     Summary [   0.006s] 2 tests run
"""


def test_a_process_of_nextest_that_ends_with_0_is_found_out_by_the_canary() -> None:
    source = "use calc::clamp;\n\n#[test]\nfn clamps() {\n    assert_eq!(clamp(5, 0, 3), 3);\n}\n"
    made = canary("tests/clamp.rs", source.encode(), "mark", {"clamps"})
    assert made is not None
    assert silent(made[0].lines, read_report({}, NEXTEST.format("FAIL"))) == []
    assert silent(made[0].lines, read_report({}, NEXTEST.format("PASS"))) == [
        "a failing test that was added to tests/clamp.rs did not fail",
        "clamps in tests/clamp.rs did not fail with another expected value (`3` → `4`)",
    ]


TWO_TESTS = """\
import unittest

import calc


class ClampTest(unittest.TestCase):
    async def test_never_awaited(self):
        self.assertEqual(calc.clamp(5, 0, 3), 3)
        self.assertEqual(calc.clamp(-1, 0, 3), 0)

    def test_between(self):
        self.assertEqual(calc.clamp(2, 0, 3), 2)
"""


@pytest.mark.parametrize("mark", ["a", "b", "c", "d"])
def test_every_new_test_has_to_fail_with_other_expected_values(mark: str) -> None:
    made = canary("tests/test_clamp.py", TWO_TESTS.encode(), mark, {"test_never_awaited", "test_between"})
    assert made is not None
    names = [
        f"tests/test_clamp.py::ClampTest.{name}" for name in ("test_never_awaited", "test_between", f"test_{mark}")
    ]
    all_fail = TestReport(dict.fromkeys(names, Result.FAILED), complete=True)
    one_is_idle = TestReport({**all_fail.results, names[0]: Result.PASSED}, complete=True)

    assert silent(made[0].lines, all_fail) == []
    (fault,) = silent(made[0].lines, one_is_idle)
    assert fault.startswith("test_never_awaited in tests/test_clamp.py did not fail with another expected value")


# ---- old test files


def test_an_old_test_file_gets_a_failing_test_and_one_other_expected_value() -> None:
    made = canary("tests/test_clamp.py", TWO_TESTS.encode(), "mark", (), {"test_never_awaited", "test_between"})
    assert made is not None
    ((_, said),) = made[0].changed
    assert (made[0].appended, said.count("→")) == ("mark", 1)


UNSURE = """\
import os
import sys

import pytest


def test_there():
    if os.name == "nt":
        assert os.sep == "x"
    for each in os.environ.get("MORE", ""):
        assert each == "y"
    with pytest.raises(AssertionError):
        assert os.sep == "z"


def test_early():
    if not hasattr(os, "fork"):
        return
    assert len(sys.argv) == 1
"""


def test_a_value_that_an_old_test_may_never_come_to_is_left_alone() -> None:
    made = canary("tests/test_os.py", UNSURE.encode(), "mark", (), {"test_there", "test_early"})
    assert made is not None
    assert (made[0].appended, made[0].changed) == ("mark", ())


def reported(**results: Result) -> TestReport:
    """A report of tests whose names are given as `tests_a__x` for `tests/a.py::x`."""
    names = {name: "{}/{}.py::{}".format(*name.replace("__", "_").split("_")) for name in results}
    return TestReport({names[name]: result for name, result in results.items()}, complete=True)


PASSED = Result.PASSED


@pytest.mark.parametrize(
    ("base", "now", "flaky"),
    [
        (Result.FAILED, Result.FAILED, False),
        (Result.SKIPPED, Result.SKIPPED, False),
        (Result.FAILED, PASSED, False),
        (PASSED, PASSED, True),
    ],
)
def test_an_old_file_that_is_not_green_throughout_gets_no_canary(base: Result, now: Result, flaky: bool) -> None:
    before, after = (reported(tests_a__x=PASSED, tests_b__x=PASSED, tests_b__y=result) for result in (base, now))
    known = Baseline(before, ("tests/b.py::y",) if flaky else ())
    found = old_test_files(known, after, {"tests/a.py", "tests/b.py"}, (), "seed")
    assert dict(found) == {"tests/a.py": {"x"}}


def test_old_files_near_the_change_come_first_and_the_seed_decides_on_the_rest() -> None:
    paths = [f"{folder}/test_{n}.py" for folder in ("far", "near") for n in range(5)] + ["far/test_calc.py"]
    report = TestReport({f"{path}::test_x": PASSED for path in paths}, complete=True)

    def order(seed: str) -> list[str]:
        found = old_test_files(Baseline(report), report, paths, ("near/test_new.py", "src/calc.py"), seed)
        return [path for path, _ in found]

    assert {*order("a")[:6]} == {*paths[5:]}
    assert order("a") == order("a")
    assert order("a") != order("b")


@pytest.mark.parametrize(
    ("name", "path", "other"),
    [
        ("calc::TestAdd", "add_test.go", "add.go"),
        ("example.org/calc/money::TestAdd", "money/add_test.go", "other/add_test.go"),
        ("calc.AddTest::adds", "src/test/java/calc/AddTest.java", "src/test/java/calc/SubTest.java"),
        ("Tests\\AddTest::testAdds", "tests/AddTest.php", "tests/SubTest.php"),
    ],
)
def test_an_old_file_is_found_by_the_package_or_class_of_its_tests(name: str, path: str, other: str) -> None:
    report = TestReport({name: PASSED}, complete=True)
    found = old_test_files(Baseline(report), report, {path, other}, (), "seed")
    assert [each for each, _ in found] == [path]


# ---- what is no expected value, however it looks

PY, JS, GO = "def test_x():\n    {}\n", "test('x', () => {{\n  {}\n}});\n", "func TestX(t *testing.T) {{\n\t{}\n}}\n"
RS, JAVA = "#[test]\nfn x() {{\n    {}\n}}\n", "class T {{\n    @Test void x() {{\n        {}\n    }}\n}}\n"
UNASKED = [
    ("test_a.py", PY, "self.assertIn(x, (1, 2))"),
    ("test_a.py", PY, 'with pytest.raises(ValueError, match="a|b"): f(1)'),
    ("test_a.py", PY, "self.assertAlmostEqual(f(1), 3, places=1)"),
    ("test_a.py", PY, "assert len(f(1)) >= 1"),
    ("test_a.py", PY, "assert f(1) == pytest.approx(3, abs=1)"),
    ("test_a.py", PY, "assert f(1) == 3 or f(2) == 3"),
    ("test_a.py", PY, "assert not f(1) == 3"),
    ("test_a.py", PY, "with pytest.raises(AssertionError):\n        assert f(1) == 3"),
    ("test_a.py", PY, "with self.assertRaises(AssertionError):\n        self.assertEqual(f(1), 3)"),
    ("test_a.py", PY, "if result.kind != 3: result.forget()"),
    ("test_a.py", PY, "rows = query.eq(3)"),
    ("a.test.js", JS, "expect(f(1)).not.toBe(3);"),
    ("a.test.js", JS, "expect(f(1)).to.not.equal(3);"),
    ("a.test.js", JS, "expect(f(1)).toMatchSnapshot('named');"),
    ("a.test.js", JS, "const rows = query.eq('id', 3);"),
    ("a.test.js", JS, "expect(() => expect(f(1)).toBe(3)).toThrow();"),
    ("a.test.js", JS, "assert.throws(() => assert.strictEqual(f(1), 3));"),
    ("a_test.go", GO, 'if runtime.NumCPU() != 1 {\n\t\tt.Skip("one is enough")\n\t}'),
    ("a_test.go", GO, "if f(1) != 3 {\n\t\tgot.Add(1)\n\t}"),
    ("tests/a.rs", RS.replace("#[test]", "#[test]\n#[should_panic]"), "assert_eq!(f(1), 3);"),
    ("tests/a.rs", RS, 'assert_eq!(f(1), g(1), "they differ");'),
    ("T.java", JAVA, 'assertEquals("they differ", g(1), f(1));'),
    ("T.java", JAVA, "assertEquals(3, f(1), 1);"),
]


@pytest.mark.parametrize(("path", "test", "asks"), UNASKED)
def test_what_a_test_does_not_insist_on_is_left_alone(path: str, test: str, asks: str) -> None:
    name = {"py": "test_x", "go": "TestX"}.get(path.rpartition(".")[2], "x")
    made = canary(path, test.format(asks).encode(), "mark", {name})
    assert made is not None
    assert made[0].changed == ()


@pytest.mark.parametrize(
    ("path", "test", "asks", "changed"),
    [
        ("test_a.py", PY, "self.assertEqual(f(1), 3, 'they differ')", "f(1), 4,"),
        ("test_a.py", PY, "with suppress(AssertionError):\n        assert f(1) == 3", "f(1) == 4"),
        ("test_a.py", PY, "if f(1) != 3:\n        self.fail()", "f(1) != 4"),
        ("a.test.js", JS, "expect(f(1)).toBe(3);", "toBe(4)"),
        ("a.test.js", JS, "await expect(f(1)).resolves.toEqual(3);", "toEqual(4)"),
        ("a.test.js", JS, "f(1).should.equal(3);", "equal(4)"),
        ("a.test.js", JS, "t.equal(f(1), 3, 'they differ');", "f(1), 4,"),
        ("a_test.go", GO, 'if got := f(1); got != 3 {\n\t\tt.Errorf("got %d", got)\n\t}', "got != 4"),
        ("a_test.go", GO, "assert.Equal(t, 3, f(1))", "t, 4,"),
        ("tests/a.rs", RS, 'assert_eq!(f(1), 3, "it is {}", 5);', "f(1), 4,"),
        ("tests/a.rs", RS, "assert_eq!(3, f(1));", "assert_eq!(4,"),
        ("T.java", JAVA, 'assertEquals("they differ", 3, f(1));', '"they differ", 4,'),
        ("T.java", JAVA, 'assertEquals("a", f(1));', '"a~"'),
    ],
)
def test_what_a_test_insists_on_is_changed(path: str, test: str, asks: str, changed: str) -> None:
    name = {"py": "test_x", "go": "TestX"}.get(path.rpartition(".")[2], "x")
    made = canary(path, test.format(asks).encode(), "mark", {name})
    assert made is not None
    assert changed in made[1].decode()


IN_A_BRANCH = """\
def test_here():
    if os.name == "nt":
        assert f(1) == 3
    assert f(1) == 4
"""


@pytest.mark.parametrize("mark", ["a", "b", "c", "d"])
def test_the_one_value_that_is_changed_is_one_that_the_test_comes_to(mark: str) -> None:
    made = canary("test_a.py", IN_A_BRANCH.encode(), mark, {"test_here"})
    assert made is not None
    assert made[0].changed == (("test_here", "`4` → `5`"),)
