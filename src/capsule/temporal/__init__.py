"""Missions on Temporal: the same core, driven by workflows, with steps done on any of several machines.

A mission is a workflow (`mission.py`), its loop the one of `engine/run_mission.py`. A step is an activity, done by a
worker (`worker.py`) in a process of its own (`steps.py`). A run and a merge queue are workflows, too (`run.py`,
`merges.py`). Workflows decide by `capsule.core` and touch nothing; only `steps.py` reaches services.
"""
