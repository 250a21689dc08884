# Sourced by the programs beside it, which stand before others of their names on the PATH.

here="$(cd "${0%/*}" && pwd)"
name="${0##*/}"
without="$(printf %s "$PATH" | tr : '\n' | grep -vxF "$here" | paste -sd: -)"
real="$(PATH="$without" command -v "$name")" || { echo "$name: not found" >&2; exit 127; }

# Say that a runner was started: one that tells nothing else afterwards has shown no test.
begun() {
    [ -z "$CAPSULE_REPORTS" ] || : > "$(mktemp "$CAPSULE_REPORTS/begun-$1-XXXXXXXX")"
}

# Take what asks for names out of the environment: runners that tests start are part of those tests.
withdraw() {
    PATH="$without"
    export PATH
    for each in NODE_OPTIONS:CAPSULE_ASK_NODE TOX_OVERRIDE:CAPSULE_ASK_TOX TOX_TESTENV_PASSENV:CAPSULE_ASK_TOX3; do
        eval "rest=\${${each%:*}} piece=\${${each#*:}}"
        [ -z "$piece" ] || case "$rest" in
            "$piece") unset "${each%:*}" ;;
            *"$piece") eval "${each%:*}=\${rest%\"\$piece\"}" ;;
        esac
    done
    PYTHONPATH="$(printf %s "$PYTHONPATH" | tr : '\n' | grep -vxF "${here%/*}/python" | paste -sd: -)"
    [ -n "$PYTHONPATH" ] || unset PYTHONPATH
    unset CAPSULE_ASK CAPSULE_ASK_NODE CAPSULE_ASK_TOX CAPSULE_ASK_TOX3 CAPSULE_REPORTS CAPSULE_TREE
}
