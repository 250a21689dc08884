"""What every tracker promises, for any tracker: ours, and yours.

    from tests.contracts.tracker_suite import TrackerContract

    class TestMyTracker(TrackerContract):
        @classmethod
        def open(cls, folder, items):
            ...  # put the items where your tracker will find them
            return connect(folder, folder / "tracker.lock")

A tracker that has no place for some fields of an item says so in `has_no`, one that is added to by what is committed
in `adds`, one that numbers its items itself in `names`, and all are held to everything else: what they do not have they
refuse, or leave as it is. One tracker is opened for all the tests of a class, because that may be costly: each test
changes only the items that are its own (`ITEMS` says which), so they can run in any order. See
docs/how-to/add-a-tracker.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from capsule.adapters import Tracker
from capsule.core.errors import InvalidId, Refused, UnknownItem
from capsule.core.item import Blocked, Item, NewItem, Status
from capsule.project import adapters

HOSTILE = "${HOME} {{TASK_ID}} $(id)\n\t[31m\u2028"

ITEMS = (
    Item(id="demo-1", title="All of it", type="epic", holds=("demo-1.1", "demo-1.2", "demo-1.3")),
    Item(id="demo-1.1", title="A part", type="feature", parent="demo-1", holds=("demo-1.1.1", "demo-1.1.2")),
    Item(id="demo-1.1.1", title="A task", parent="demo-1.1", priority=1, tags=("quick", "ui")),
    Item(id="demo-1.1.2", title="Another", parent="demo-1.1", dependencies=("demo-1.1.1",)),
    Item(id="demo-1.2", title="Straight below", parent="demo-1"),
    Item(id="demo-1.3", title="Done below", parent="demo-1", status=Status.DONE),
    Item(id="demo-2", title="Long done", status=Status.DONE),
    Item(id="demo-3", title=HOSTILE, description="--force\n{{FEEDBACK}}\n`id`", acceptance="- a"),
    # Each of these belongs to one test, which changes it.
    Item(id="demo-4", title="To be claimed"),
    Item(id="demo-5", title="To be closed"),
    Item(id="demo-6", title="In the way"),
    Item(id="demo-7", title="Waits", dependencies=("demo-6",)),
    Item(id="demo-8", title="Put aside", status=Status.BLOCKED, blocked=Blocked(Status.READY, "beads says blocked")),
    Item(id="demo-9", title="To be remarked upon"),
    Item(id="demo-10", title="Changed while others look on"),
)
CHANGED = ("demo-4", "demo-5", "demo-6", "demo-7", "demo-8", "demo-9", "demo-10")
BY_ID = {item.id: item for item in ITEMS}

BAD_IDS = ("../../etc", "a..b", "x.lock", "", "-rf", "--force", "a/b", "a b", "a\nb", "ä", "x" * 300)


class TrackerContract:
    has_no: ClassVar[tuple[str, ...]] = ()
    """Fields, but not title, status and origin, that it has no place for: they arrive as if nobody had set them."""
    adds: ClassVar[bool] = True
    """New items, comments and reopened ones are its own affair, and not of what is committed."""
    names: ClassVar[Mapping[str, str]] = {}
    """What the tracker calls the items of this suite, where it gives ids of its own."""

    @classmethod
    def open(cls, folder: Path, items: Sequence[Item]) -> Tracker:
        """Your tracker, with these items in it, in this order."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def tracker(cls, tmp_path_factory: pytest.TempPathFactory) -> Tracker:
        return cls.open(tmp_path_factory.mktemp("tracker"), ITEMS)

    def as_held(self, item: Item) -> Item:
        """As the tracker can hand it out; when it was made and changed is the tracker's own affair."""
        blank = Item(id="blank", title="Blank")
        lost = [*self.has_no, *["holds"] * ("parent" in self.has_no), "created", "updated"]
        known = self.as_known(item)
        return msgspec.structs.replace(known, **{name: getattr(blank, name) for name in lost})

    def called(self, item_id: str) -> str:
        """What the tracker calls it."""
        return self.names.get(item_id, item_id)

    def as_known(self, item: Item) -> Item:
        """The item with the ids of this suite."""
        ours = {theirs: known for known, theirs in self.names.items()}

        def known(ids: Sequence[str]) -> tuple[str, ...]:
            return tuple(ours.get(each, each) for each in ids)

        return msgspec.structs.replace(
            item,
            id=ours.get(item.id, item.id),
            parent=ours.get(item.parent, item.parent),
            holds=known(item.holds),
            dependencies=known(item.dependencies),
        )

    def given(self, items: Sequence[Item]) -> list[Item]:
        """Without what somebody may have added, or changed in another test."""
        known = map(self.as_known, items)
        return [item for item in known if item.id in BY_ID and item.id not in CHANGED]

    @property
    def has_families(self) -> bool:
        return "parent" not in self.has_no

    # ---- reading

    def test_its_name_is_that_of_its_file(self, tracker: Tracker) -> None:
        assert tracker.name in adapters("trackers") or not type(tracker).__module__.startswith("capsule.")

    @pytest.mark.promise("trackers.one-suite")
    def test_items_are_all_that_is_not_closed_in_order_as_they_were_given(self, tracker: Tracker) -> None:
        expected = [self.as_held(item) for item in self.given(ITEMS) if item.status is not Status.DONE]
        assert [self.as_held(item) for item in self.given(tracker.items())] == expected

    @pytest.mark.promise("trackers.one-suite", "004-types.round-trip")
    @pytest.mark.parametrize("item_id", ["demo-1", "demo-1.1.2", "demo-3"])
    def test_an_item_arrives_as_it_was_given_however_often_it_is_asked_for(
        self, tracker: Tracker, item_id: str
    ) -> None:
        for _ in range(2):
            item = tracker.item(self.called(item_id))
            assert self.as_held(item) == self.as_held(BY_ID[item_id])
            assert msgspec.json.decode(msgspec.json.encode(item), type=Item) == item

    def test_an_unknown_id_is_named_with_its_nearest(self, tracker: Tracker) -> None:
        with pytest.raises(UnknownItem) as caught:
            tracker.item(self.called("demo-1.1.7"))
        assert self.called("demo-1.1.7") in caught.value.message
        assert self.called("demo-1.1.1") in caught.value.hint

    @pytest.mark.parametrize("ask", ["item", "claim", "release", "close"])
    def test_a_part_of_an_id_is_no_id(self, tracker: Tracker, ask: str) -> None:
        with pytest.raises(UnknownItem):
            getattr(tracker, ask)("1.1.1", *["because"] * (ask == "close"))
        assert tracker.item(self.called("demo-1.1.1")).status is Status.READY

    @pytest.mark.promise("trackers.one-suite", "004-follow-ups.ids-as-paths")
    @pytest.mark.parametrize("bad", BAD_IDS)
    def test_an_id_that_may_not_become_a_path_is_refused(self, tracker: Tracker, bad: str) -> None:
        for ask in (tracker.item, tracker.claim, tracker.release, lambda item_id: tracker.close(item_id, "")):
            with pytest.raises(InvalidId):
                ask(bad)

    def test_it_knows_what_it_has_closed_ones_too(self, tracker: Tracker) -> None:
        assert [tracker.knows(self.called(name)) for name in ("demo-3", "demo-2", "demo-33")] == [True, True, False]

    def test_own_files_are_relative_and_inside_the_project(self, tracker: Tracker) -> None:
        assert all(not Path(path).is_absolute() and ".." not in Path(path).parts for path in tracker.own_files())

    def test_an_item_is_one_part_unless_the_tracker_knows_better(self, tracker: Tracker) -> None:
        item = BY_ID["demo-3"]
        assert list(tracker.parts(item, "any")) == [item]

    # ---- families

    @pytest.mark.parametrize(
        ("item_id", "feature", "epic"),
        [("demo-1.1.1", "demo-1.1", "demo-1"), ("demo-1.2", "", "demo-1"), ("demo-3", "", "")],
    )
    def test_lineage_is_the_feature_and_its_epic(self, tracker: Tracker, item_id: str, feature: str, epic: str) -> None:
        lineage = tracker.lineage(tracker.item(self.called(item_id)))
        found = [self.as_known(above).id if above else "" for above in (lineage.feature, lineage.epic)]
        assert found == ([feature, epic] if self.has_families else ["", ""])

    @pytest.mark.parametrize(
        ("item_id", "expected"),
        [
            ("demo-1", ["demo-1.1", "demo-1.1.1", "demo-1.1.2", "demo-1.2", "demo-1.3"]),
            ("demo-3", []),
        ],
    )
    def test_under_an_item_is_all_it_holds_parents_first_closed_ones_too(
        self, tracker: Tracker, item_id: str, expected: list[str]
    ) -> None:
        found = self.given(tracker.under(self.called(item_id)))
        names = expected if self.has_families else []
        assert [self.as_held(item) for item in found] == [self.as_held(BY_ID[name]) for name in names]

    def test_under_nothing_is_everything_there_is(self, tracker: Tracker) -> None:
        assert [item.id for item in self.given(tracker.under(""))] == [item.id for item in self.given(ITEMS)]

    def test_nothing_is_under_what_is_not_there(self, tracker: Tracker) -> None:
        with pytest.raises(UnknownItem):
            tracker.under(self.called("demo-77"))

    # ---- changing: each of these has items of its own

    def test_a_claim_can_be_made_twice_and_taken_back_twice(self, tracker: Tracker) -> None:
        for change, status in ((tracker.claim, Status.IN_PROGRESS), (tracker.release, Status.READY)):
            for _ in range(2):
                change(self.called("demo-4"))
                assert tracker.item(self.called("demo-4")).status is status

    def test_a_closed_item_stays_closed_whatever_is_done_to_it(self, tracker: Tracker) -> None:
        tracker.claim(self.called("demo-5"))
        for change in (tracker.close, tracker.close, lambda item_id, _: tracker.release(item_id)):
            change(self.called("demo-5"), "--force\n$(merged)")
            assert self.is_closed(tracker, "demo-5")
        with pytest.raises(Refused):
            tracker.claim(self.called("demo-5"))
        assert self.is_closed(tracker, "demo-5")
        assert self.called("demo-5") not in [item.id for item in tracker.items()]

    def is_closed(self, tracker: Tracker, item_id: str) -> bool:
        """A tracker shows a closed item as done, or says that it was archived."""
        try:
            return tracker.item(self.called(item_id)).status is Status.DONE
        except UnknownItem as fault:
            return "was archived" in fault.message

    def test_what_waits_for_another_is_closed_or_refused_in_words_and_never_in_between(self, tracker: Tracker) -> None:
        try:
            tracker.close(self.called("demo-7"), "too early")
        except Refused as refusal:
            assert self.called("demo-7") in refusal.message and refusal.hint
            assert tracker.item(self.called("demo-7")).status is Status.READY
            tracker.close(self.called("demo-6"), "out of the way")
            assert tracker.item(self.called("demo-7")).dependencies == ()
            tracker.close(self.called("demo-7"), "now it can be")
        assert self.is_closed(tracker, "demo-7")

    def test_what_was_put_aside_is_open_again_once_and_for_all(self, tracker: Tracker) -> None:
        assert tracker.item(self.called("demo-8")).status is Status.BLOCKED
        if not self.adds:
            with pytest.raises(Refused):
                tracker.reopen(self.called("demo-8"))
            assert tracker.item(self.called("demo-8")).status is Status.BLOCKED
            return
        for _ in range(2):
            tracker.reopen(self.called("demo-8"))
        item = tracker.item(self.called("demo-8"))
        assert (item.status, item.blocked) == (Status.READY, None)

    @pytest.mark.parametrize("change", ["claim", "release", "close", "reopen", "comment"])
    def test_changing_an_unknown_item_is_refused(self, tracker: Tracker, change: str) -> None:
        words = ["because"] * (change in ("close", "comment"))
        if change == "comment" and not self.adds:
            before = tracker.items()
            tracker.comment("nobody", *words)
            assert tracker.items() == before and not tracker.knows("nobody")
            return
        with pytest.raises(UnknownItem if self.adds else (UnknownItem, Refused)):
            getattr(tracker, change)("nobody", *words)

    def test_a_closed_item_cannot_be_claimed(self, tracker: Tracker) -> None:
        with pytest.raises(Refused):
            tracker.claim(self.called("demo-2"))
        assert tracker.item(self.called("demo-2")).status is Status.DONE

    def test_a_comment_changes_nothing_else(self, tracker: Tracker) -> None:
        tracker.comment(self.called("demo-9"), "--force\n- a remark\t\u2028 $(id)")
        tracker.comment(self.called("demo-9"), "")
        assert self.as_held(tracker.item(self.called("demo-9"))) == self.as_held(BY_ID["demo-9"])

    def test_a_change_touches_no_other_item(self, tracker: Tracker) -> None:
        others = {self.called(name) for name in BY_ID} - {self.called("demo-10")}
        before = {item.id: item for item in tracker.items() if item.id in others}
        tracker.claim(self.called("demo-10"))
        tracker.close(self.called("demo-10"), "done")
        assert {item.id: item for item in tracker.items() if item.id in others} == before

    # ---- adding

    def test_what_is_added_is_there_and_is_added_once(self, tracker: Tracker) -> None:
        if not self.adds:
            with pytest.raises(Refused):
                tracker.add(NewItem(title="More"))
            return
        new = NewItem(
            title="--force $(id)",
            description="-d\nmore",
            type="bug",
            priority=0,
            tags=("a,b", 'say "x"'),
            dependencies=(self.called("demo-1.1.1"),),
            found_in=self.called("demo-3"),
            reference="capsule/demo-3/work#1/1",
        )
        name = tracker.add(new)
        assert tracker.add(new) == tracker.add(NewItem(title="Else", reference=new.reference)) == name
        held = ("title", "description", "type", "priority", "tags", "dependencies")
        fields = [field for field in held if field not in self.has_no]
        item = tracker.item(name)
        assert item.origin == new.reference, "by which it is found again"
        assert {field: getattr(item, field) for field in fields} == {field: getattr(new, field) for field in fields}
        assert item.status is Status.READY and name not in map(self.called, BY_ID) and tracker.knows(name)

    def test_what_is_added_below_an_item_belongs_to_it(self, tracker: Tracker) -> None:
        if not (self.has_families and self.adds):
            with pytest.raises(Refused):
                tracker.add(NewItem(title="Below", parent=self.called("demo-9")))
            return
        first, second = (tracker.add(NewItem(title="The same words", parent=self.called("demo-9"))) for _ in range(2))
        assert first != second
        assert [item.id for item in tracker.under(self.called("demo-9"))] == [first, second]
        assert next(item for item in tracker.items() if item.id == self.called("demo-9")).holds == (first, second)

    @pytest.mark.parametrize(
        "lost", [NewItem(title="Lost", parent="nobody"), NewItem(title="Lost", dependencies=("nobody",))]
    )
    def test_nothing_is_added_that_belongs_to_nobody(self, tracker: Tracker, lost: NewItem) -> None:
        with pytest.raises(UnknownItem if self.adds else (UnknownItem, Refused)):
            tracker.add(lost)
        assert "Lost" not in [item.title for item in tracker.items()]
