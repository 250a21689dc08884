"""The commands there are: name, module and one line about each."""

from __future__ import annotations


class Verb:
    """A command: its module, its line in the list, and the exit code of a usage error."""

    def __init__(self, module: str, words: str, usage_error: int = 2) -> None:
        self.module = module
        self.help = words
        self.usage_error = usage_error


GROUPS: dict[str, dict[str, Verb]] = {
    "See it work": {
        "demo": Verb("demo", "run two tasks through the whole pipeline, with a scripted agent"),
        "doctor": Verb("doctor", "what is installed, what is missing, how to get it"),
    },
    "Work": {
        "run": Verb("run", "take an item through its workflow, to main"),
        "step": Verb("step", "take an item one agent further, then stop"),
        "triage": Verb("triage", "have every new item of the backlog assessed"),
        "dashboard": Verb("dashboard", "browse items, watch missions, do what there is to do; also in a browser"),
        "show": Verb("show", "where a mission stands: phases, claims against evidence, feedback"),
        "report": Verb("report", "what missions came to, as a page to look at: times, claims, cost, changes"),
        "logs": Verb("logs", "what the agents of a mission printed"),
        "abort": Verb("abort", "end a mission; keep its branch"),
        "clean": Verb("clean", "end missions and delete their branches; everything is salvaged first"),
        "config": Verb("config", "every effective setting, and where it comes from"),
    },
    "Items": {
        "init": Verb("init", "make a backlog in this project"),
        "add": Verb("add", "put an item into the tracker: a backlog, or beads"),
        "status": Verb("status", "every open item, what it waits for, and which missions are under way"),
        "explain": Verb("explain", "which item is next, and why every other is not"),
        "advance": Verb("advance", "move an item of the backlog one step on, or to a phase"),
        "unblock": Verb("unblock", "let an item go on that is blocked or has halted, with notes for its next agent"),
        "approve": Verb("approve", "say yes to an item of the backlog that waits for a decision"),
        "complete": Verb("complete", "say that an item is done; it is archived, or closed in its tracker"),
        "close": Verb("close", "say that an item will not be done; it is archived, or closed in its tracker"),
    },
    "Step by step": {
        "setup-template": Verb("setup_template", "make the demo project", 1),
        "run-pipeline": Verb("run_pipeline", "take one item through its workflow; never the queue"),
        "prep": Verb("prep", "make a worktree and a worklog for an item", 1),
        "run-phase": Verb("run_phase", "run one agent with one prompt in a directory"),
        "parse-signal": Verb("parse_signal", "read the signal from an agent's output on stdin"),
        "merge": Verb("merge", "merge a mission that is signed off"),
        "teardown": Verb("teardown", "remove all worktrees; keep logs and journal", 1),
    },
    "Other": {
        "completion": Verb("completion", "shell completion for bash, zsh or tcsh"),
        "version": Verb("version", "the version"),
    },
}
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
