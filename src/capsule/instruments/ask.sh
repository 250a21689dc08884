# Asks the test runners behind a command to say how each test ended, by name. Sourced before the command, in its shell.
#
#   CAPSULE_REPORTS   the folder that takes one file per test process
#   CAPSULE_TREE      the folder that holds the tree under test
#   CAPSULE_ASK       this folder
#
# Nothing here changes the command. A runner that cannot be asked leaves no file, and its run is judged by its exit code.

export PYTHONPATH="$CAPSULE_ASK/python${PYTHONPATH:+:$PYTHONPATH}"
export PYTEST_ADDOPTS="${PYTEST_ADDOPTS:+$PYTEST_ADDOPTS }-p capsule_pytest --continue-on-collection-errors --maxfail=0"
# tox passes no variables on unless it is told to.
export TOX_OVERRIDE="${TOX_OVERRIDE:+$TOX_OVERRIDE;}testenv.pass_env+=CAPSULE_REPORTS,CAPSULE_TREE,PYTHONPATH,PYTEST_ADDOPTS"
export PATH="$CAPSULE_ASK/bin:$PATH"

# Node ends at once if NODE_OPTIONS holds an option that it does not know.
case "$(command -v node > /dev/null && node --version 2> /dev/null)" in
    '' | v[0-9].* | v1[0-7].* | v18.?.* | v18.1[0-4].* | v19.[0-5].*) ;;
    *)
        NODE_OPTIONS="${NODE_OPTIONS:+$NODE_OPTIONS }--require=\"$CAPSULE_ASK/node/hook.cjs\""
        NODE_OPTIONS="$NODE_OPTIONS --test-reporter=spec --test-reporter-destination=stdout"
        NODE_OPTIONS="$NODE_OPTIONS --test-reporter=\"$CAPSULE_ASK/node/reporter.mjs\" --test-reporter-destination=stderr"
        export NODE_OPTIONS
        ;;
esac
