"""What an agent does to the repository from inside its worktree, as small shell scripts.

Each is run with ROOT (the project), COMMON (its .git), EVIL (a program that leaves its mark when anybody but the agent
runs it) and OUT (a folder outside the repository). Whatever fails is not the script's business: a sandbox refuses.
"""

from __future__ import annotations

SETTINGS = {
    "fsmonitor": 'git config core.fsmonitor "$EVIL"',
    "where hooks are": """
        mkdir -p "$OUT/hooks"
        for hook in pre-commit post-checkout post-index-change; do cp "$EVIL" "$OUT/hooks/$hook"; done
        git config core.hooksPath "$OUT/hooks"
    """,
    "a filter, by the tree": """
        git config filter.zz.clean "$EVIL"; git config filter.zz.smudge "$EVIL"
        echo '* filter=zz' > .gitattributes
    """,
    "a filter, by the repository": """
        git config filter.yy.clean "$EVIL"; git config filter.yy.smudge "$EVIL"
        echo '* filter=yy' > "$COMMON/info/attributes"
    """,
    "a merge driver": """
        git config merge.zz.driver "$EVIL"
        echo '* merge=zz' > "$COMMON/info/attributes"
        echo theirs > answer
    """,
    "a diff command": """
        git config diff.zz.command "$EVIL"
        echo '* diff=zz' > "$COMMON/info/attributes"
        echo more >> README.md
    """,
    "a text converter": """
        git config diff.tt.textconv "$EVIL"
        echo '* diff=tt' > "$COMMON/info/attributes"
        echo more >> README.md
    """,
    "a program that shows differences": 'git config diff.external "$EVIL"; echo more >> README.md',
    "a program that signs": """
        git config commit.gpgsign true; git config gpg.program "$EVIL"
        echo more >> README.md
    """,
    "settings elsewhere": """
        mkdir -p "$OUT"; printf '[core]\\n\\tfsmonitor = %s\\n' "$EVIL" > "$OUT/settings"
        git config include.path "$OUT/settings"
    """,
    "settings of the worktree": """
        git config extensions.worktreeConfig true
        git config --worktree core.fsmonitor "$EVIL"
    """,
    "an alias": 'git config alias.lg "!$EVIL"',
}
HOOKS = {
    hook: f'cp "$EVIL" "$COMMON/hooks/{hook}"'
    for hook in (
        *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change"),
        *("reference-transaction", "pre-merge-commit", "post-merge", "post-checkout"),
    )
}
REFS = {
    "a replaced commit": """
        evil=$(git commit-tree -m start $(git mktree < /dev/null)); git replace main "$evil"
    """,
    "main at its own commit": """
        echo merged > MERGED; git add MERGED; git commit -q --no-verify -m mine; git update-ref refs/heads/main HEAD
        git reset -q --hard HEAD~1
    """,
    "a flag that hides an edit": """
        (cd "$ROOT" && git update-index --skip-worktree README.md)
    """,
    "objects of somebody else": """
        mkdir -p "$OUT/objects"; echo "$OUT/objects" > "$COMMON/objects/info/alternates"
    """,
    "ignored files": "echo '*' >> \"$COMMON/info/exclude\"",
}
POINTERS = {
    "another repository": """
        git init -q "$OUT/own"; git -C "$OUT/own" config core.fsmonitor "$EVIL"
        rm -f .git; echo "gitdir: $OUT/own/.git" > .git
    """,
    "another common folder": """
        git init -q "$OUT/own"; git -C "$OUT/own" config core.fsmonitor "$EVIL"
        for entry in "$COMMON"/worktrees/*; do echo "$OUT/own/.git" > "$entry/commondir"; done
    """,
    "another common folder for everybody": """
        mkdir -p "$OUT"; cp -r "$COMMON" "$OUT/own"; git config --file "$OUT/own/config" core.fsmonitor "$EVIL"
        echo "$OUT/own" > "$COMMON/commondir"
    """,
    "a repository elsewhere": """
        mkdir -p "$OUT"; mv "$COMMON" "$OUT/own"; git -C "$OUT/own" config core.fsmonitor "$EVIL"
        echo "gitdir: $OUT/own" > "$COMMON"
    """,
}
FORGED = {
    "our own git's settings": """
        git config --file "$COMMON/capsule/git/config" filter.zz.clean "$EVIL"
        git config --file "$COMMON/capsule/git/config" filter.zz.smudge "$EVIL"
        printf 'filter.zz.clean\\n%s\\0' "$EVIL" >> "$COMMON/capsule/git/settings"
        echo '* filter=zz' > "$COMMON/capsule/git/info/attributes"
    """,
    "our own git's common folder": """
        git init -q "$OUT/own"; git -C "$OUT/own" config filter.zz.clean "$EVIL"
        echo '* filter=zz' > "$OUT/own/.git/info/attributes"
        echo "$OUT/own/.git" > "$COMMON/capsule/git/commondir"
    """,
    "our lists": """
        echo > "$COMMON/capsule/ours"
        git rev-parse HEAD > "$COMMON/capsule/places/$CAPSULE_ITEM/base"
    """,
}
PIPES = {
    name: f'rm -f "$COMMON/{name}"; mkfifo "$COMMON/{name}"'
    for name in ("HEAD", "index", "packed-refs", "logs/HEAD", "refs/heads/zz")
}
CONTENT = {
    "a repository inside": """
        git init -q sub; git -C sub config core.fsmonitor "$EVIL"
        git -C sub commit -q --allow-empty -m x; git add sub
    """,
    "a bare repository inside": """
        git init -q --bare bare; git -C bare config core.fsmonitor "$EVIL"
        git -C bare config core.bare false; git -C bare config core.worktree .
    """,
    "a link out": 'ln -s "$OUT" out; ln -s ../../../.. up; ln -s .git/hooks hooks',
    "a secret": 'echo "key = $SECRET" > notes.txt; printf -- "-----BEGIN RSA PRIVATE KEY-----\\nMII\\n" > id_rsa',
}
LEFT_BEHIND = {
    "a daemon": "(setsid sh -c 'while :; do sleep 1; \"$EVIL\"; done' > /dev/null 2>&1 &)",
    "an end to its keeper": "kill -9 $(ps -o ppid= -p $PPID) 2> /dev/null",
    "links in the place of our papers": """
        mkdir -p "$OUT/papers"
        rm -rf .capsule/output worklog.md; mkdir -p .capsule
        ln -s "$OUT/papers" .capsule/output; ln -s "$OUT/papers/worklog" worklog.md
    """,
}
