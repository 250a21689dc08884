"""Hold the claim on an item while its mission works, so that no other clone works on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from capsule.adapters import Order
from capsule.core.claim import Standing
from capsule.core.errors import ClosedMeanwhile, MergedElsewhere, RemoteFault, UnknownItem
from capsule.core.event import Warned
from capsule.core.item import Status
from capsule.core.state import MissionState
from capsule.engine.job import load_state, note, only_to_be_closed
from capsule.engine.patience import Patience
from capsule.engine.requesting import refuse_if_proposed
from capsule.services import Services


@contextmanager
def claimed(order: Order, services: Services) -> Iterator[str]:
    """Claim the item; afterwards release it, or keep it for whoever goes on with it here.

    Yield what is to be told about the claim. A part of another mission is claimed with that one.
    """
    if order.parent or not services.claims.shared:
        yield ""
        return
    told = _taken(order, services)
    try:
        _refuse_if_closed(order, services)
        yield told
    except KeyboardInterrupt:  # an order: leave at once
        raise
    except BaseException:
        _leave(order.mission, services)
        raise
    _leave(order.mission, services)


def _taken(order: Order, services: Services) -> str:
    """Claim it; wait for a remote that cannot be reached if the order says so."""
    state = MissionState(mission=order.mission, item=order.item)
    patience = Patience(services, state, "the claim", "")
    while True:
        try:
            refuse_if_proposed(order, services)
            return services.claims.take(order.mission, services.trunk(order.into).holds, take_over=order.take_over)
        except MergedElsewhere:
            services.claims.let_go(order.mission, Standing.NEEDS_YOU)
            raise
        except RemoteFault as fault:
            services.claims.let_go(order.mission, Standing.STOPPED)
            if not (order.patient and patience.wait_for(fault)):
                raise


def tell_remarks(mission: str, services: Services) -> None:
    """Journal what became of the claim since the last step; raise HeldElsewhere if it is lost."""
    for remark in services.claims.check(mission):
        note(services, mission, Warned(at=services.clock.now(), text=remark))


def _refuse_if_closed(order: Order, services: Services) -> None:
    """Refuse a new mission whose item was closed between the look at the queue and the claim."""
    if order.item.status is Status.DONE or load_state(services, order.mission).under_way:
        return
    services.state_store.refresh()
    with suppress(UnknownItem):  # it is in the archive
        if services.tracker.item(order.item.id).status is not Status.DONE:
            return
    raise ClosedMeanwhile(f"{order.item.id} was closed meanwhile.", "There is nothing left to do for it.")


def release_if_over(mission: str, services: Services) -> str:
    """Release the claim on an item that nobody works on any more; return a warning if the remote does not do so."""
    return "" if _goes_on(load_state(services, mission)) else services.claims.release(mission)


def _goes_on(state: MissionState) -> bool:
    return state.under_way or only_to_be_closed(state)


def _leave(mission: str, services: Services) -> None:
    state = load_state(services, mission)
    if _goes_on(state):
        waits = state.halt or state.in_review
        services.claims.let_go(mission, Standing.NEEDS_YOU if waits else Standing.STOPPED)
        return
    warning = services.claims.release(mission)
    if warning and state.started:
        note(services, mission, Warned(at=services.clock.now(), text=warning))
