# Sourced by the programs beside it, which stand before others of their names on the PATH.

here="$(cd "${0%/*}" && pwd)"
name="${0##*/}"

# Set `left` to a list of folders without one of them. No program is started for it: this runs before every python.
leave_out() {
    left= rest="$2:"
    while [ -n "$rest" ]; do
        [ "${rest%%:*}" = "$1" ] || left="$left:${rest%%:*}"
        rest="${rest#*:}"
    done
    left="${left#:}"
}

leave_out "$here" "$PATH"
without="$left"
real="$(PATH="$without" command -v "$name")" || { echo "$name: not found" >&2; exit 127; }

# Say that a runner was started: one that tells nothing else afterwards has shown no test.
begun() {
    [ -z "$CAPSULE_REPORTS" ] || : > "$(mktemp "$CAPSULE_REPORTS/begun-$1-XXXXXXXX")"
}

# Take what asks for names out of the environment: runners that tests start are part of those tests.
withdraw() {
    PATH="$without"
    export PATH
    for each in NODE_OPTIONS:NODE TOX_OVERRIDE:TOX TOX_TESTENV_PASSENV:TOX3 SPEC_OPTS:RSPEC PHP_INI_SCAN_DIR:PHP; do
        eval "rest=\${${each%:*}} piece=\$CAPSULE_ASK_${each#*:}"
        [ -z "$piece" ] || case "$rest" in
            "$piece") unset "${each%:*}" ;;
            *"$piece") eval "${each%:*}=\${rest%\"\$piece\"}" ;;
        esac
    done
    leave_out "${here%/*}/python" "$PYTHONPATH"
    PYTHONPATH="$left"
    [ -n "$PYTHONPATH" ] || unset PYTHONPATH
    unset CAPSULE_ASK CAPSULE_ASK_NODE CAPSULE_ASK_TOX CAPSULE_ASK_TOX3 CAPSULE_ASK_RSPEC CAPSULE_ASK_PHP CAPSULE_REPORTS CAPSULE_TREE
}
