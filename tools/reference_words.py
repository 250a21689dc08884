"""What tools/reference cannot read from the code: what each field is for, and an example of every event."""

from __future__ import annotations

from capsule.core import event, evidence, workflow
from capsule.core.decide import Decision, Move
from capsule.core.failure import Failure, Kind
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict

LATER = "Read and checked; nothing uses it yet."
SETTINGS = {
    "project.prefix": "What ids of backlog items begin with.",
    "project.main": "The branch that work is merged into. `auto`: what origin/HEAD names, else `main`, else `master`.",
    "guardrails.max_size": "Above this assessment an item is parked for a human.",
    "guardrails.max_complexity": "Likewise.",
    "guardrails.max_risk": "Likewise.",
    "execution.phase_timeout_minutes": "How long an agent, a gate or a set-up command may take.",
    "execution.idle_timeout_minutes": "How long an agent may print nothing.",
    "execution.max_retries": "How often each review may send work back. Unset: what the workflow says.",
    "execution.max_wait_minutes": "How long a phase waits in all for a provider that is overloaded or limits us.",
    "execution.default_phase_cap": "How many agents one run may start, retries included; `--cap` says it for one run.",
    "tracker": "Where items come from: `backlog` (BACKLOG.yaml) or `beads-file` (the JSONL of a `.beads` folder). "
    "`auto`: whichever is there.",
    "agent": "Who does the work: an adapter, a preset, or a name under `agents`.",
    "agents.<name>.kind": "Its adapter or preset. Empty: by its name, or by `command`.",
    "agents.<name>.model": "The model it is asked to use.",
    "agents.<name>.command": "An argv in which `{prompt}`, `{prompt_file}` and `{model}` are filled in.",
    "agents.<name>.model_args": "For `command`: arguments that are added where a model is chosen, `{model}` filled in.",
    "agents.<name>.failures": "For `command`: a regular expression for each kind of failure, matched against the end "
    "of an output without an answer, such as `{rate limit: HTTP 429}`.",
    "agents.<name>.prompt": "How a command that names none gets its prompt: as last argument, on stdin, or as a file.",
    "agents.<name>.args": "More arguments. For `scripted`: the script.",
    "agents.<name>.env": "Environment variables for this agent alone.",
    "agents.<name>.phases.<name>.model": "The model in this phase.",
    "agents.<name>.phases.<name>.args": "More arguments in this phase.",
    "agents.<name>.phases.<name>.env": "More environment variables in this phase.",
    "agents.<name>.trust_project": "Let the repository's own agent settings, hooks and tool servers take part.",
    "workflow.default": "The workflow of an item. `auto`: `change` for a backlog, `tdd` for beads.",
    "workflow.by_type": "Workflows by type of item, such as `{bug: hotfix}`.",
    "workflow.by_tag": "Workflows by tag; a tag wins over the type.",
    "workspace.publish": "How work gets to your branch: `merge` at the end, or in `steps`; `auto` asks the workflow.",
    "workspace.kind": "Retired. Every mission has a worktree of its own; `workspace.publish` takes its place.",
    "workspace.setup": "A command that makes a fresh worktree usable, such as `npm ci`; again when its inputs change.",
    "workspace.copy": "Globs of untracked files to copy into a worktree, such as `.env`. They are never merged.",
    "workspace.dependencies": "Folders of dependencies besides those found by themselves (`.venv`, `node_modules`, …).",
    "verify": "`strict`: a refuted PASS goes back. `warn`: it is recorded. `off`: nothing is looked at.",
    "evidence.test": "The test command. `auto`: what can be detected. `none`: missions run unverified.",
    "evidence.test_timeout_minutes": "How long the test command may take. Timed out is never green.",
    "evidence.test_globs": "Which files are tests, fixtures and runner configuration. `auto`: by ecosystem.",
    "evidence.debris": "Globs of files that must not be left behind.",
    "sandbox": "Agents and tests in bubblewrap: where it works (`auto`), always (`required` refuses otherwise), never.",
    "confinement.network": "Whether what runs in the sandbox reaches the network.",
    "confinement.readable": "Paths in your home that the sandbox does not hide.",
    "confinement.writable": "Paths that agents and tests in the sandbox may change besides their own place.",
    "confinement.daemons": "Sockets (paths) and variables (`DOCKER_HOST`) of daemons that the sandbox does not hide.",
    "confinement.at_checkout_path": "Whether the project's own commands find their place at the checkout's "
    "own path; set it to false where they need a daemon outside the sandbox.",
    "environment.allow": "Variables (or patterns such as `AWS_*`) that are passed on on top of the usual ones.",
    "environment.secret": "Variables whose values are kept out of every log, besides those whose names say so.",
    "skills": "Whether agents are sent to the skills in `.claude/skills/changes`: where they are there, always (it is "
    "an error if they are not), or never.",
    "build": "Who builds a change: an agent, or one TDD mission for each phase of its SPEC.",
    "budget.phase.usd": "Dollars for one phase of a mission, all its attempts together.",
    "budget.phase.tokens": "Tokens for one phase of a mission, all its attempts together.",
    "budget.phase.minutes": "Minutes of agents' time for one phase of a mission, all its attempts together.",
    "budget.mission.usd": "Dollars for one mission.",
    "budget.mission.tokens": "Tokens for one mission.",
    "budget.mission.minutes": "Minutes of agents' time for one mission.",
    "budget.run.usd": "Dollars for one run of the queue.",
    "budget.run.tokens": "Tokens for one run of the queue.",
    "budget.run.minutes": "Minutes of agents' time for one run of the queue.",
    "campaign.on_failure": "What an epic does when one of its items does not come to its end: `stop` there, or "
    "`continue` with what does not depend on it; `--on-failure` says it for one run.",
    "campaign.file_discovered": "Whether work that agents notice on the way, and that is not their item's, is put into "
    "the tracker as items of its own. For every mission whose item is a bead.",
    "notify": "Who is called when a mission needs you, is done or has stopped: `none`, the terminal's `bell`, a "
    "command line that is given the event as JSON on stdin, or a list of these: [more](../how-to/notifications.md).",
    "git.hooks": "Whether your pre-commit and commit-msg hooks have a say about a step before it is committed to "
    "your branch (`publish: steps`). One that refuses makes the claim REFUTED.",
    "merge.push": f"{LATER} Capsule never pushes.",
}

WORKFLOW = {
    "name": "Leave it out: a workflow has the name of its file.",
    "phases": "What is done, in order.",
    "description": "One line for people.",
    "contract": "How agents answer: by a signal at the end of their output, or by a result file.",
    "workspace": "How work is published, in its stored words; write `publish: merge` or `publish: steps` instead.",
    "retries": "How often each review may send work back, where neither the phase nor the settings say so.",
    "prompts": "Prompts by name, here in the file.",
}
PHASE = {
    "name": "Letters, digits, `-` and `_`; unique in the file.",
    "role": "What a verdict means; see the table below.",
    "stage": "The label behind `[2/5]`; phases may share one. Default: the name.",
    "prompt": "**Doer**: an agent with this prompt (from `prompts`, the project, or built in).",
    "run": "**Doer**: a shell command. Exit 0 is PASS, anything else NEEDS_WORK with the end of its output.",
    "do": "**Doer**: an action of the engine: ",
    "workflow": "**Doer**: child missions that walk through this workflow.",
    "rework": "The earlier phase that work is sent back to. A review must name one.",
    "retries": "How often this phase may send back or be tried again.",
    "agent": "Who does it, by name in the settings.",
    "model": "The model that agent is asked to use.",
    "timeout_minutes": "How long it may take. Default: `execution.phase_timeout_minutes`.",
    "idle_timeout_minutes": "How long an agent may print nothing. Default: `execution.idle_timeout_minutes`.",
    "when": "Conditions; where one does not hold, the phase is skipped.",
    "escalate": "Somebody else, after so many setbacks.",
    "checks": "What Capsule looks at for itself when the phase claims success; see below.",
    "artefact": "The document that the checks `artefact` and `spec-done` ask for, such as `SPEC`.",
    "leads_to": "What a backlog's item becomes when the phase has passed; see below.",
    "skill": "The project's own skill for this phase, where it has one. Names like `{{CHANGE_FOLDER}}` are filled in.",
    "form": "The template that the prompt's `{{TEMPLATE}}` stands for.",
    "may_close": "Whether its agent may say that the item is a duplicate, or done: only `closing` phases follow.",
    "closing": "Also done where an item is closed without a merge.",
}
WHEN = {
    "changed": "Globs; at least one file that differs from the base matches.",
    "status": "The item's status is one of these.",
    "size": "The item's assessment is one of these.",
    "complexity": "Likewise.",
    "risk": "Likewise.",
    "impact": "Likewise.",
}
ROUTE = {
    "status": "The status; a `scoped` item that no guardrail objects to becomes `ready` at once.",
    "when": "Conditions on the item, its new assessments included.",
}
ESCALATION = {
    "after": "How many setbacks.",
    "agent": "Who tries then. Default: the same agent, with the other model.",
    "model": "The model that one is asked to use.",
}
CHECKS = {
    "base-green": "The test command is green, or finds no tests, before anything is done.",
    "red": "The test command is red. Green twice parks the item as “seems already done”.",
    "green": "The test command is green.",
    "green-when-done": "The same, but only for PASS, not for MORE.",
    "changed": "Something differs from what the last review let pass.",
    "changed-now": "Something differs from when this phase began. PASS may find that nothing was left to do.",
    "only-tests": "Only test files differ from the base.",
    "untouched-tests": "No test file was added, changed or removed since the last review let it pass.",
    "no-debris": "No file that matches `evidence.debris` was added.",
    "fit-for-main": "Neither the work nor a commit of its branch brings a secret, a link that leads out of the "
    "repository, a pointer to another repository or a `.git`. Looked at by every phase.",
    "as-approved": "Nothing differs from what the last review let pass.",
    "committed": "Everything to be delivered is in a commit of the branch.",
    "artefact": "The document exists and is not empty.",
    "more-is-more": "For MORE: something differs from when this phase began.",
    "only-documents": "Nothing differs from the last commit but the item's own documents.",
    "known-duplicate": "An item that is said to be a duplicate has a twin that the tracker knows.",
    "hooks": "The user's own commit hooks agree. Looked at by every phase where `git.hooks` is true and steps are "
    "published one by one.",
    "idea": "An item that goes on to be researched has an idea file that is not empty.",
    "spec-done": "No `- [ ]` is left in the document, for PASS.",
}
ACTIONS = {
    "prep": "claims the item, makes the worktree and its worklog, sets it up, and sees whether the base is green",
    "publish": "builds the merge result, runs the gate on exactly that tree, and moves main by compare-and-swap",
    "archive": "stores the papers, removes worktree and branch, closes the item",
}

EXIT_CODES: list[tuple[str, ...]] = [
    ("0", "done: merged, shown, made, or there was nothing to do"),
    ("1", "stopped for a human: retries exhausted, conflict, red gate, parked, refused; or not found"),
    ("2", "it could not start or go on: usage, settings, a missing program, an agent that failed, a bug of ours"),
    ("3", "not now: somebody else is at it, the breaker tripped, a budget is spent, a provider has had enough"),
    ("130", "stopped by SIGINT or SIGTERM; resumable"),
    ("141", "whoever read what `run`, `step` or `triage` printed has left, so they stopped; resumable"),
]

AT, TREE, COMMIT = "2026-11-16T09:30:00Z", "f5774835678f", "4467053d6349"
CHECKPOINT = evidence.Checkpoint(commit="1f0c9a7be210", head=COMMIT, tree=TREE)
OBSERVATION = evidence.Observation(tree=TREE, command="make test", colour=evidence.Colour.RED, exit_code=1, seconds=1.2)
REFUTED = evidence.Evidence(
    "green", "all tests pass", "`make test` is red, exit 1", evidence.Standing.REFUTED, "1 failed, 15 passed"
)
EXAMPLES: tuple[event.Event, ...] = (
    event.MissionStarted(
        at=AT, mission="demo-1", item=Item(id="demo-1", title="Validate email format"), base=COMMIT, into="main",
        workflow=workflow.Workflow(name="short", phases=(workflow.Phase(name="execute", prompt="execute"),)),
        policy=event.Policy(test="make test", test_globs=("tests/**",)),
    ),
    event.StepBegun(at=AT, key="execute#1", phase="execute", run=1, attempt=1, agent="claude"),
    event.StepEnded(
        at=AT, key="execute#1", phase="execute", run=1,
        outcome=event.Outcome(
            signal=Signal(verdict=Verdict.PASS, feedback="All green.", files_changed=("src/a.py",), summary="Done"),
            evidence=(REFUTED,), checkpoint=CHECKPOINT, files=("src/a.py",), agent="claude", seconds=41.5,
        ),
        decision=Decision(
            move=Move.RETRY, verdict=Verdict.REFUTED, reason="all tests pass", back_to="execute", counter="execute"
        ),
    ),
    event.Observed(at=AT, key="9f86d081884c7d659a2feaa0", observation=OBSERVATION),
    event.Recorded(at=AT, key="prd#1", commit="4be4924d8554", follow_ups=("WRK-004",)),
    event.Proposed(at=AT, commit="4be4924d8554", tree=TREE, onto=COMMIT),
    event.Reopened(at=AT),
    event.Rebased(at=AT, base=COMMIT, checkpoint=CHECKPOINT, re_enter="execute", conflicts=("src/a.py",)),
    event.MovedByHand(at=AT, what="item", expected="in_progress", found="closed"),
    event.Salvaged(at=AT, ref="refs/capsule/salvage/demo-1/1", why="left behind by an interrupted execute"),
    event.Warned(at=AT, text="the tracker was slow to answer"),
    event.Waiting(
        at=AT,
        key="execute#1",
        failure=Failure(Kind.RATE_LIMIT, "The provider says that there were too many requests.", resets_in=30.0),
        seconds=31.2,
    ),
    event.Spent(at=AT, key="execute#1", phase="execute", usage=event.Usage(tokens_in=5200, tokens_out=40, usd=0.02)),
    event.Stopped(at=AT, cause="Stopped during execute; nothing is lost.", exit_code=130),
    event.Abandoned(at=AT, how="aborted", salvage="refs/capsule/salvage/demo-1/2"),
    event.ItemClosed(at=AT, reason="Merged as 4be4924d8554"),
    event.RunStarted(at=AT, cap=100),
    event.Spawned(at=AT, mission="WRK-001", key="prd#1"),
    event.RunEnded(at=AT, why="nothing is left to do"),
    event.Advanced(at=AT, item="demo-1.1", title="Add input validation", done=1, of=2),
    event.ParentClosed(
        at=AT, item="demo-1.1", title="Add input validation", reason="all 2 items it holds are done"
    ),
    event.Discovered(at=AT, items={"demo-2": "Reject a negative price"}),
)  # fmt: skip
