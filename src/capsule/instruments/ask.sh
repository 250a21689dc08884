# Asks the test runners behind a command to say how each test ended, by name. Sourced before the command, in its shell.
#
#   CAPSULE_REPORTS   the folder that takes one file per test process
#   CAPSULE_TREE      the folder that holds the tree under test
#   CAPSULE_ASK       this folder
#
# Nothing here changes the command. A runner that cannot be asked leaves no file, and its run is judged by its exit code.
# Each runner takes all of it out of the environment of its tests: what they start in turn is part of them.

export PYTHONPATH="$CAPSULE_ASK/python${PYTHONPATH:+:$PYTHONPATH}"

# tox passes no variables on unless it is told to: tox 4 by overrides, tox 3 by a list.
export CAPSULE_ASK_TOX='testenv.pass_env+=PYTHONPATH,CAPSULE_*'
export TOX_OVERRIDE="${TOX_OVERRIDE:+$TOX_OVERRIDE;}$CAPSULE_ASK_TOX"
export CAPSULE_ASK_TOX3='PYTHONPATH CAPSULE_*'
export TOX_TESTENV_PASSENV="${TOX_TESTENV_PASSENV:+$TOX_TESTENV_PASSENV }$CAPSULE_ASK_TOX3"

# Node ends at once if NODE_OPTIONS holds an option that it does not know, or one reporter more than destinations. Its
# version is asked before ours stands on the PATH.
CAPSULE_ASK_NODE="--require=\"$CAPSULE_ASK/node/hook.cjs\""
case "$(command -v node > /dev/null && node --version 2> /dev/null) $NODE_OPTIONS" in
    ' '* | v[0-9].* | v1[0-7].* | v18.?.* | v18.1[0-4].* | v19.[0-5].* | *--test-reporter*) ;;
    *)
        CAPSULE_ASK_NODE="$CAPSULE_ASK_NODE --test-reporter=spec --test-reporter-destination=stdout"
        CAPSULE_ASK_NODE="$CAPSULE_ASK_NODE --test-reporter=\"$CAPSULE_ASK/node/reporter.mjs\" --test-reporter-destination=stderr"
        ;;
esac
export CAPSULE_ASK_NODE
export NODE_OPTIONS="${NODE_OPTIONS:+$NODE_OPTIONS }$CAPSULE_ASK_NODE"

# rspec adds SPEC_OPTS to its own words; PHP reads settings from one folder more.
export CAPSULE_ASK_RSPEC="--no-fail-fast --require \"$CAPSULE_ASK/ruby/capsule_rspec.rb\""
export SPEC_OPTS="${SPEC_OPTS:+$SPEC_OPTS }$CAPSULE_ASK_RSPEC"
export CAPSULE_ASK_PHP=":$CAPSULE_ASK/php"
export PHP_INI_SCAN_DIR="$PHP_INI_SCAN_DIR$CAPSULE_ASK_PHP"

export PATH="$CAPSULE_ASK/bin:$PATH"
