"""What other clones of the same remote work on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from capsule.core.errors import SettingsError
from capsule.project import Project

if TYPE_CHECKING:
    from capsule.core.claim import Claim


def held_elsewhere(project: Project, *, look: bool) -> Mapping[str, Claim]:
    """Return the items that other clones have claimed; without `look`, as the remote said when it was asked last."""
    if project.settings.merge.to == "local":
        return {}
    from capsule.wiring import claims_of  # noqa: PLC0415 - start-up

    with closing(claims_of(project)) as claims:
        return claims.elsewhere(look=look)


def refuse_if_held_elsewhere(project: Project, item: str) -> None:
    """Refuse an item that another clone works on."""
    if project.settings.merge.to == "local":
        return
    from capsule.wiring import claims_of  # noqa: PLC0415 - start-up

    with closing(claims_of(project)) as claims:
        claims.refuse_if_held(item)


def release_what_is_done(project: Project, item: str) -> None:
    """Release the claim of a run that was killed right after its last step."""
    if project.settings.merge.to == "local":
        return
    from capsule.wiring import claims_of  # noqa: PLC0415 - start-up

    with closing(claims_of(project)) as claims:
        claims.release(item)


def refuse_items_of_one_clone(project: Project) -> None:
    """Refuse items whose state other clones do not see: an item that is done here would be done again there."""
    from capsule.wiring import beads_are_shared  # noqa: PLC0415 - start-up

    if project.tracker.name == "beads" and not beads_are_shared(project):
        cause = "The beads are in a database of this clone: another clone of the remote would do them again."
        hint = (
            "Put them on a Dolt server, or into GitHub issues. If every clone uses one database, or there is only this "
            "clone, say so: `tracker: {name: beads, shared: true}` in .capsule/config.yaml"
        )
        raise SettingsError(cause, hint)
