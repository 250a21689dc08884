"""The table of commands: name, module and one line about each."""

from __future__ import annotations


class Verb:
    """A command: its module, its line in the list, the exit code of a usage error, and whether it has --project-dir."""

    def __init__(self, module: str, words: str, usage_error: int = 2, *, in_project: bool = True) -> None:
        self.module = module
        self.help = words
        self.usage_error = usage_error
        self.in_project = in_project


GROUPS: dict[str, dict[str, Verb]] = {
    "See it work": {
        "demo": Verb("demo", "run two tasks through the pipeline, with a scripted agent", in_project=False),
        "doctor": Verb("doctor", "check what is installed, what is missing, and how to get it"),
    },
    "Work": {
        "run": Verb("run", "take an item through its workflow, to main"),
        "jobs": Verb("jobs", "show or change how many missions run at a time"),
        "stop": Verb("stop", "stop all runs of this project, or the named missions"),
        "sync": Verb("sync", "ask what has become of requests that wait for review"),
        "worker": Verb("worker", "do steps of missions on Temporal, on this machine"),
        "step": Verb("step", "run one phase of an item, then stop"),
        "triage": Verb("triage", "assess every new item of the backlog"),
        "dashboard": Verb("dashboard", "browse items, watch and control missions; also in a browser"),
        "show": Verb("show", "show the state of a mission: phases, evidence, feedback"),
        "report": Verb("report", "report on missions: claims, cost, diff (Markdown, page, card)"),
        "logs": Verb("logs", "show what the agents of a mission printed"),
        "abort": Verb("abort", "end a mission; keep its branch"),
        "clean": Verb("clean", "end missions and delete their branches; all is salvaged first"),
        "config": Verb("config", "show every effective setting and where it comes from"),
    },
    "Items": {
        "init": Verb("init", "create a backlog in this project"),
        "add": Verb("add", "add an item to the tracker: a backlog, or beads"),
        "import": Verb("import_items", "add many items: Markdown, CSV, or JSON of `gh issue list`"),
        "status": Verb("status", "list open items, their dependencies, and missions under way"),
        "questions": Verb("questions", "list what needs you, in full, with the commands that answer"),
        "answer": Verb("answer", "answer what needs you: a question, a decision, a refuted claim"),
        "list": Verb("list", "list items, those with the given words; `ls` for short"),
        "explain": Verb("explain", "explain which item is next, and why the others are not"),
        "edit": Verb("edit", "edit an item: title, description, levels, tags"),
        "depend": Verb("depend", "add or remove dependencies of items"),
        "hold": Verb("hold", "put items on hold, with the reason"),
        "reopen": Verb("reopen", "reopen items that are done, closed or failed"),
        "undo": Verb("undo", "undo the last command that changed the backlog"),
        "advance": Verb("advance", "move a backlog item to its next step, or to a phase"),
        "unblock": Verb("unblock", "resume a blocked item, with notes for its next agent"),
        "approve": Verb("approve", "approve an item of the backlog that waits for a decision"),
        "accept": Verb("accept", "accept one refuted claim of a mission, with the reason"),
        "complete": Verb("complete", "mark an item as done: archive it, or close it in its tracker"),
        "close": Verb("close", "close an item that will not be done, with the reason"),
    },
    "Step by step": {
        "setup-template": Verb("setup_template", "create the demo project", 1, in_project=False),
        "run-pipeline": Verb("run_pipeline", "take one item through its workflow; never the queue"),
        "prep": Verb("prep", "create a worktree and a worklog for an item", 1),
        "run-phase": Verb("run_phase", "run one agent with one prompt in a directory"),
        "parse-signal": Verb("parse_signal", "read the signal from an agent's output on stdin", in_project=False),
        "merge": Verb("merge", "merge a mission that is signed off"),
        "teardown": Verb("teardown", "remove all worktrees; keep logs and journal", 1),
    },
    "Other": {
        "completion": Verb("completion", "print a completion script for bash, zsh, fish or tcsh", in_project=False),
        "version": Verb("version", "print the version", in_project=False),
    },
}
ALIASES: dict[str, tuple[str, ...]] = {
    "ls": ("list",),
    "find": ("list",),
    "search": ("list",),
    "items": ("list",),
    "inbox": ("questions",),
    "set": ("edit",),
    "block": ("hold",),
    "reply": ("answer",),
    "retry": ("answer", "--retry"),
    "new": ("add",),
    "create": ("add",),
    "start": ("run",),
    "resume": ("run",),
    "continue": ("run",),
    "view": ("show",),
    "info": ("show",),
    "log": ("logs",),
    "next": ("explain",),
    "done": ("complete",),
    "finish": ("complete",),
    "ui": ("dashboard",),
    "web": ("dashboard", "--web"),
    "settings": ("config",),
}
"""Aliases of a command, with their options."""
_DROP = "An item: `capsule close ID --reason ...`. A mission's worktree and branch: `capsule clean ID`."
_END = "`capsule stop ID` stops it and keeps progress; `capsule abort ID` ends its mission."
HINTS = {
    **dict.fromkeys(("drop", "remove", "rm", "delete", "del", "cancel"), _DROP),
    **dict.fromkeys(("kill", "pause", "quit"), _END),
    "reject": 'Say no and why: capsule answer ID --close "..."',
    "priority": "A backlog goes by impact (capsule edit ID --impact high), beads by priority (edit ID --priority N).",
    "history": "`capsule report` reports on missions, `capsule list --all` lists finished items.",
    "diff": "`capsule questions` and `capsule report` name the git command that shows the changes.",
    "validate": "`capsule doctor` checks what is installed, `capsule config` the settings.",
    "check": "`capsule doctor` checks what is installed, `capsule config` the settings.",
    "test": "`capsule doctor` shows the test command.",
    "open": "`capsule show ID` shows its mission, `capsule reopen ID` reopens it.",
    "watch": "`capsule dashboard` watches everything, `capsule logs ID -f` one mission.",
}
"""Hints for guessed words that may mean several commands."""
OVERVIEW = "_overview"
INTERNAL = {
    "_runner": Verb("runner", "run one mission for a queue", in_project=False),
    "_step": Verb("step_of_worker", "do one step for a worker", in_project=False),
    "_ids": Verb("ids", "print the ids of open items, for shells", in_project=False),
    OVERVIEW: Verb("overview", "show the state of the project, and the next command", in_project=False),
}
"""Hidden commands: started by Capsule itself, or without any word."""
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
