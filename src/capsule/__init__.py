"""Capsule runs coding agents unattended, checks what they claim, and merges only what is proven.

A tracker yields an item; the item walks through a workflow as a mission.
Each phase of the workflow is a fresh headless agent in an isolated git worktree.
The agent ends with a signal: what it claims (`core.signal`).
Capsule looks for itself: what it saw (`core.evidence`, `engine.checks`).
One pure function turns both into a decision (`core.decide`): advance, retry, rework, park, abort.
Every outcome is journaled, with its decision, before it is acted on (`core.event`, `journals`).
A mission's state is its journal replayed (`core.state`), so resuming is running it again (`engine.run_mission`).
Main moves only to a tree on which the gate was green (`workspaces.trunk`).
Screens, worklogs, JSON lines and reports are renderings of the same events.
"""

__version__ = "0.1.0"
