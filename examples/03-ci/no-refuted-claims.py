"""Reads the events of `capsule run --output json` and fails the job where an agent claimed what was not so."""

# ruff: noqa: T201

import json
import sys

events = [json.loads(line) for line in sys.stdin]
endings = [event for event in events if event["event"] == "step_ended"]
refuted = [ending for ending in endings if ending["decision"]["verdict"] == "REFUTED"]
for ending in refuted:
    proof = [piece for piece in ending["outcome"]["evidence"] if piece["standing"] == "refuted"]
    print(f"{ending['mission']} {ending['key']}: " + "; ".join(f"{p['claimed']}, but {p['observed']}" for p in proof))
print(f"steps: {len(endings)}, refuted claims: {len(refuted)}")
sys.exit(1 if refuted or not endings else 0)
