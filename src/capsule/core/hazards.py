"""Find content in a change that must never reach a main branch, even with an approval.

Each hazard is a sentence about one file. It never quotes what was found: agents read it and logs keep it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from capsule.core.globs import matches
from capsule.core.syntax import language_of

GITLINK, LINK = "160000", "120000"

# Forms that nothing else has: few false alarms are worth more than many patterns.
_KEYS = {
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "an AWS access key": r"\b(?:AKIA|ASIA)(?!\w*EXAMPLE)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})\b",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}\b",
    "an Anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{24,}",
    "an OpenAI key": r"\bsk-(?:proj-)?[A-Za-z0-9_-]{20}T3BlbkFJ[A-Za-z0-9_-]{20}",
    "a Slack token": r"\bxox[abprs]-[0-9]{8,}-[A-Za-z0-9-]{10,}",
    "a Google key": r"\bAIza[0-9A-Za-z_-]{35}\b",
    "a Stripe key": r"\b[rs]k_live_[0-9A-Za-z]{20,}\b",
}
_KNOWN = {what: re.compile(pattern) for what, pattern in _KEYS.items()}

_PYTHON = r"PYTEST_CURRENT_TEST|['\"](?:_?pytest|unittest)[\w.]*['\"] in (?:sys\.)?modules\b"
_SCRIPT = r"\b(?:NODE_TEST_CONTEXT|JEST_WORKER_ID|VITEST_\w+|process\.env\.VITEST)\b"
_ASKS_IF_TESTED = {
    "py": _PYTHON,
    **dict.fromkeys(("js", "ts", "tsx"), _SCRIPT),
    "go": r"\btesting\.Testing\(\)",
    "rs": r"\bcfg!?\(not\(test\)\)|\bcfg!\(test\)",
}
"""Ways for code to detect that it is being tested, and to behave differently then."""


class AddedFile(msgspec.Struct, frozen=True):
    """One file of a change: its mode and the added lines; a link's target counts as a line."""

    path: str
    mode: str
    added: str = ""


def hazards(files: Iterable[AddedFile], redact: Callable[[str], str] = str, folders: Sequence[str] = ()) -> list[str]:
    """Return the hazards in words, each once; `redact` knows the secrets of this machine.

    Code that names one of `folders`, where the work is done, would run nowhere else.
    """
    found = []
    for file in files:
        if any(part.lower() == ".git" for part in file.path.split("/")):
            found.append(f"{file.path} lies in a folder called .git")
        elif file.mode == GITLINK:
            found.append(f"{file.path} is a pointer to another repository, not files")
        elif file.mode == LINK:
            if leads_out(file):
                found.append(f"{file.path} is a symbolic link that leads out of the repository")
        elif redact(file.added) != file.added:
            found.append(f"{file.path} holds the value of a secret variable of this machine")
        elif kind := next((what for what, form in _KNOWN.items() if form.search(file.added)), ""):
            found.append(f"{file.path} holds {kind}")
        elif language_of(file.path) and any(folder in file.added for folder in folders):
            found.append(f"{file.path} names a folder of this machine, in which it was written")
    return list(dict.fromkeys(found))


def asks_if_tested(files: Iterable[AddedFile]) -> dict[str, str]:
    """Name each file, by path, whose code asks whether it is being tested: it may behave differently elsewhere."""
    known = ((file, _ASKS_IF_TESTED.get(language_of(file.path))) for file in files)
    return {
        file.path: f"{file.path} asks whether it is being tested (`{found[0]}`)"
        for file, form in known
        if form and (found := re.search(form, file.added))
    }


def allowed_secrets(files: Iterable[AddedFile], allow: Sequence[str]) -> tuple[list[AddedFile], list[str]]:
    """Drop the secrets of files that are allowed to hold them, and name those files; keep other hazards."""
    kept, named = [], []
    for file in files:
        kind = next((what for what, form in _KNOWN.items() if form.search(file.added)), "")
        if kind and file.mode not in (GITLINK, LINK) and any(matches(file.path, glob) for glob in allow):
            named.append(f"{file.path} holds {kind}, which evidence.allow permits")
            kept.append(msgspec.structs.replace(file, added=_without_keys(file.added)))
        else:
            kept.append(file)
    return kept, list(dict.fromkeys(named))


def _without_keys(text: str) -> str:
    for form in _KNOWN.values():
        text = form.sub("", text)
    return text


def leads_out(link: AddedFile) -> bool:
    """Tell whether a link leaves the repository; going up from a folder counts, as that may be a link itself."""
    parts = [part for part in link.added.split("/") if part not in ("", ".")]
    ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    rest = parts[ups:]
    too_high = ups > link.path.count("/")
    return link.added.startswith("/") or too_high or ".." in rest or ".git" in (part.lower() for part in rest)
