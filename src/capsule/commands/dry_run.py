"""`--dry-run`: the prompts, commands and gate of a mission, shown; nothing done."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from capsule.core.decide import Move
from capsule.core.state import MissionState, agent_for, apply

if TYPE_CHECKING:
    from capsule.commands.run import Plan


def show_plan(plan: Plan, model: str) -> int:
    from capsule.core.event import MissionStarted
    from capsule.core.state import Step
    from capsule.engine.brief import brief
    from capsule.engine.job import Job
    from capsule.reports.live import FanOut
    from capsule.wiring import open_services

    order = plan.order
    event = MissionStarted(
        at="", mission=order.mission, item=order.item, workflow=order.workflow, base=order.base, into=order.into,
        policy=order.policy, lineage=order.lineage,
    )  # fmt: skip
    state = plan.state if plan.state.under_way else apply(MissionState(), event)
    print(f"{order.mission}: {' '.join(order.item.title.split())}")
    print(f"workflow {order.workflow.name}, base {state.base[:12]}, into {state.into}, verify {state.policy.verify}")
    print(f"gate: {state.policy.test or 'none found: the mission would be UNVERIFIED'}")
    with open_services(plan.project, plan.tracker, plan.words, FanOut(), None, model=model, dry=True) as services:
        for name in state.to_do:
            phase = state.workflow.phase(name)
            print(f"\n=== {name} ({phase.role.value}; checks: {', '.join(phase.checks) or 'none'})")
            if phase.run:
                print(f"$ {phase.run}")
            elif phase.do or phase.workflow:
                print(f"{'action' if phase.do else 'child missions by workflow'}: {phase.do or phase.workflow}")
            if not phase.prompt:
                continue
            job = Job(Step(state.mission, name, state.runs.get(name, 0) + 1), state, phase, services, _never)
            agent_name, phase_model = agent_for(state, phase)
            briefing = brief(job, phase_model, dry=True)
            argv = services.agent(agent_name, phase_model).describe(briefing)
            print("$ " + shlex.join("PROMPT" if word == briefing.prompt else word for word in argv))
            print(services.redact(briefing.prompt))
    return 0


def _never(*_: object) -> MissionState:
    raise AssertionError(Move.ABORT)
