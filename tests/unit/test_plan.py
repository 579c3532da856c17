"""The next move for one segment, from what is wanted and what hardware shows. Pure, so every pair can be tried."""

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_manager.domain.errors import Code
from fabric_manager.domain.lifecycle import LIFECYCLE, Event, Goal, Phase, advance
from fabric_manager.domain.units import GiB
from fabric_manager.reconciler.plan import (
    OFFERS_MAX,
    REFUSALS_MAX,
    Decision,
    Do,
    Place,
    Seen,
    SentRelease,
    Settle,
    StepKind,
    Wait,
    Wanted,
    covers,
    plan,
    present,
)
from fabric_manager.southbound.driver import BackgroundStatus, ExtentState, TaggedExtent, VppbFacts, VppbState

TAG = UUID(int=1)
PLACE = Place(switch="sw-0", vcs=0, vppb=1, port=8, ld_id=2)
WHOLE = replace(PLACE, ld_id=None)
SPANS = ((0, GiB), (4 * GiB, GiB))
DRIVEN = (Phase.BINDING, Phase.RELEASE_BLOCKED, Phase.RELEASING, Phase.SANITIZING)
FREE = VppbFacts(number=1, state=VppbState.FREE)
BUSY = VppbFacts(number=1, state=VppbState.BUSY)
OURS = VppbFacts(number=1, state=VppbState.BOUND_LD, port=8, ld_id=2)
THEIRS = VppbFacts(number=1, state=VppbState.BOUND_LD, port=9, ld_id=2)


def a_wanted(phase: Phase, *, kind: str = "mld", **fields: Any) -> Wanted:
    body: dict[str, Any] = {
        "segment_id": TAG,
        "phase": phase,
        "goal": Goal.BIND if phase is Phase.BINDING else Goal.RELEASE,
        "kind": kind,
        "serial": "SERIAL",
        "size_bytes": 2 * GiB,
        "ld_id": 2 if kind == "mld" else None,
        "place": PLACE,
        "spans": SPANS if kind == "dcd" else (),
        "sanitize_on_release": kind == "dcd",
    }
    return Wanted(**body | fields)


def in_life(boot_count: int | None) -> BackgroundStatus:
    return BackgroundStatus(in_progress=False, percent=0, opcode=0, return_code=0, boot_count=boot_count)


def an_extent(state: ExtentState, *, start: int = 0, size: int = GiB) -> TaggedExtent:
    return TaggedExtent(start_bytes=start, size_bytes=size, tag=TAG, state=state)


def shown(*states: ExtentState, vppb: VppbFacts | None = OURS, boot_count: int = 1) -> Seen:
    extents = tuple(an_extent(state, start=span[0]) for state, span in zip(states, SPANS, strict=False))
    return Seen(vppb=vppb, extents=extents, device_background=in_life(boot_count))


def steps(decision: Decision) -> StepKind:
    assert isinstance(decision, Do), decision
    return decision.step


def settled(decision: Decision) -> Event:
    assert isinstance(decision, Settle), decision
    return decision.event


A, OFFERED, R, S = ExtentState.ACCEPTED, ExtentState.OFFERED, ExtentState.RELEASE_REQUESTED, ExtentState.SANITIZING

# An LD of an MLD.


def test_an_ld_is_bound_where_its_vppb_is_free() -> None:
    decision = plan(a_wanted(Phase.BINDING), Seen(vppb=FREE))
    assert decision == Do(step=StepKind.BIND, component="sw-0", intent={"vcs": 0, "vppb": 1, "port": 8, "ld_id": 2})


@pytest.mark.parametrize("phase", [Phase.BINDING, Phase.RELEASING])
def test_nobody_interferes_with_a_switch_that_is_at_it(phase: Phase) -> None:
    assert isinstance(plan(a_wanted(phase), Seen(vppb=BUSY)), Wait)


def test_an_ld_is_bound_once_it_reads_back_as_ours() -> None:
    assert settled(plan(a_wanted(Phase.BINDING), Seen(vppb=OURS))) is Event.BIND_READ_BACK


def test_a_binding_that_came_true_in_the_end_is_taken_even_when_late() -> None:
    late = a_wanted(Phase.BINDING, late=True, refusals=REFUSALS_MAX)
    assert settled(plan(late, Seen(vppb=OURS))) is Event.BIND_READ_BACK


@pytest.mark.parametrize(
    ("ends", "code"), [({"late": True}, Code.DEADLINE_EXCEEDED), ({"refusals": REFUSALS_MAX}, Code.DEVICE_FAILED)]
)
@pytest.mark.parametrize("kind", ["mld", "dcd"])
def test_what_no_host_saw_fails_without_erasure_and_what_one_may_have_seen_is_undone(
    kind: str, ends: dict[str, Any], code: Code
) -> None:
    for exposed, event in ((False, Event.BIND_UNTOUCHED), (True, Event.UNDO)):
        decision = plan(a_wanted(Phase.BINDING, kind=kind, exposed=exposed, **ends), shown(vppb=FREE))
        assert settled(decision) is event
        assert isinstance(decision, Settle)
        assert decision.failure is not None
        assert decision.failure[0] is code


@pytest.mark.parametrize("vppb", [THEIRS, None])
def test_a_vppb_that_is_not_ours_is_left_alone(vppb: VppbFacts | None) -> None:
    assert settled(plan(a_wanted(Phase.BINDING), Seen(vppb=vppb))) is Event.BIND_UNTOUCHED
    assert settled(plan(a_wanted(Phase.RELEASING), Seen(vppb=vppb))) is Event.GONE


def test_releasing_unbinds_what_is_ours_with_the_managed_option() -> None:
    decision = plan(a_wanted(Phase.RELEASING), Seen(vppb=OURS))
    assert decision == Do(step=StepKind.UNBIND, component="sw-0", intent={"vcs": 0, "vppb": 1, "option": "managed"})


@pytest.mark.parametrize("kind", ["mld", "dcd"])
def test_memory_that_the_node_has_online_is_only_waited_for(kind: str) -> None:
    seen = shown(A, A) if kind == "dcd" else Seen(vppb=OURS)
    assert isinstance(plan(a_wanted(Phase.RELEASE_BLOCKED, kind=kind), seen), Wait)
    assert settled(plan(a_wanted(Phase.RELEASE_BLOCKED, kind=kind), Seen(vppb=FREE))) is Event.GONE


def test_an_ld_is_erased_until_there_is_evidence() -> None:
    assert steps(plan(a_wanted(Phase.SANITIZING), Seen())) is StepKind.SANITIZE


@pytest.mark.parametrize(
    ("goal", "event", "phase"),
    [
        (Goal.RELEASE, Event.SANITIZED_RELEASE, Phase.RELEASED),
        (Goal.UNDO, Event.SANITIZED_UNDO, Phase.FAILED),
        (Goal.UNBIND, Event.SANITIZED_UNBIND, Phase.RESERVED),
    ],
)
@pytest.mark.parametrize("kind", ["mld", "dcd"])
def test_sanitizing_ends_by_the_goal(kind: str, goal: Goal, event: Event, phase: Phase) -> None:
    decision = plan(a_wanted(Phase.SANITIZING, kind=kind, goal=goal, sanitized=True), Seen())
    assert settled(decision) is event
    assert advance(Phase.SANITIZING, event) is phase


def test_a_whole_device_is_bound_as_a_port() -> None:
    wanted = a_wanted(Phase.BINDING, kind="sld", ld_id=None, place=WHOLE)
    assert steps(plan(wanted, Seen(vppb=FREE))) is StepKind.BIND
    bound = VppbFacts(number=1, state=VppbState.BOUND_PORT, port=8)
    assert settled(plan(wanted, Seen(vppb=bound))) is Event.BIND_READ_BACK


# Extents of a DCD.


def test_a_dcd_is_attached_first_and_then_offers() -> None:
    wanted = a_wanted(Phase.BINDING, kind="dcd")
    assert steps(plan(wanted, shown(vppb=FREE))) is StepKind.BIND
    offer = plan(wanted, shown())
    assert steps(offer) is StepKind.OFFER
    assert isinstance(offer, Do)
    assert offer.intent["spans"] == [list(span) for span in SPANS]


@pytest.mark.parametrize(
    ("seen", "late", "outcome"),
    [
        (shown(OFFERED, OFFERED), False, Wait),
        (shown(A, OFFERED), False, Wait),
        (shown(OFFERED, OFFERED), True, StepKind.WITHDRAW),
        (shown(A, OFFERED), True, Event.UNDO),
        (shown(A, A), False, Event.BIND_READ_BACK),
        (shown(A, A), True, Event.BIND_READ_BACK),
        (shown(A), False, Event.UNDO),
        (shown(A, R), False, Event.UNDO),
        (shown(S, S), True, Event.UNDO),
        (shown(A, A, vppb=FREE), False, StepKind.BIND),  # the switch forgot, the device did not
    ],
)
def test_what_the_host_answered_decides(seen: Seen, late: bool, outcome: object) -> None:
    decision = plan(a_wanted(Phase.BINDING, kind="dcd", late=late, exposed=True), seen)
    match decision:
        case Do():
            assert decision.step is outcome
        case Settle():
            assert decision.event is outcome
        case Wait():
            assert outcome is Wait


def test_a_host_that_turned_it_down_often_enough_is_unready() -> None:
    wanted = a_wanted(Phase.BINDING, kind="dcd", offers=OFFERS_MAX, exposed=True)
    decision = plan(wanted, shown())
    assert isinstance(decision, Settle)
    assert decision.event is Event.UNDO
    assert decision.failure is not None
    assert decision.failure[0] is Code.NODE_UNREADY


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (shown(A, A), StepKind.RELEASE),
        (shown(A, R), StepKind.RELEASE),
        (shown(OFFERED, OFFERED), StepKind.WITHDRAW),
        (shown(A, A, vppb=FREE), StepKind.WITHDRAW),  # behind an unbound vPPB no host is left to answer
        (shown(R, R, boot_count=2), StepKind.RELEASE),  # asked in another life: ask again
    ],
)
def test_extents_are_taken_back_by_asking(seen: Seen, outcome: StepKind) -> None:
    asked = (SentRelease(boot_count=1, outcome="done"),)
    assert steps(plan(a_wanted(Phase.RELEASING, kind="dcd", releases=asked), seen)) is outcome


def test_a_host_that_was_asked_is_waited_for() -> None:
    asked = (SentRelease(boot_count=1, outcome="done"),)
    assert isinstance(plan(a_wanted(Phase.RELEASING, kind="dcd", releases=asked), shown(R, R)), Wait)
    assert settled(plan(a_wanted(Phase.RELEASING, kind="dcd", releases=asked), shown(S, S))) is Event.GONE


def proves(seen: Seen, **fields: Any) -> object:
    decision = plan(a_wanted(Phase.SANITIZING, kind="dcd", exposed=True, **fields), seen)
    match decision:
        case Do():
            return decision.step
        case Settle():
            return decision.event
        case Wait():
            return Wait


@pytest.mark.parametrize("outcome", ["done", "unknown", None])
def test_a_release_in_the_present_life_of_an_erasing_region_is_proof(outcome: str | None) -> None:
    sent = (SentRelease(boot_count=1, outcome=outcome),)
    assert proves(shown(), releases=sent) is StepKind.PROVE
    assert proves(shown(S), releases=sent) is Wait
    assert proves(shown(boot_count=2), releases=sent) is Event.UNPROVABLE


@pytest.mark.parametrize(("outcome", "expected"), [("done", StepKind.PROVE), ("unknown", Event.UNPROVABLE)])
def test_without_an_erasing_region_only_an_answered_release_is_proof(outcome: str, expected: object) -> None:
    sent = (SentRelease(boot_count=1, outcome=outcome),)
    assert proves(shown(), releases=sent, sanitize_on_release=False) is expected


def test_a_refused_release_proves_nothing() -> None:
    assert proves(shown(), releases=(SentRelease(boot_count=1, outcome="refused"),)) is Event.UNPROVABLE


def test_what_was_offered_in_this_life_only_left_the_host_erased() -> None:
    assert proves(shown(), offered_in=(1,)) is StepKind.PROVE
    assert proves(shown(), offered_in=(1,), sanitize_on_release=False) is Event.UNPROVABLE
    assert proves(shown(), offered_in=(1, 2)) is Event.UNPROVABLE
    assert proves(shown(boot_count=2), offered_in=(1,)) is Event.UNPROVABLE


def test_an_erasure_that_goes_on_in_another_life_is_written_down_before_it_ends() -> None:
    sent = (SentRelease(boot_count=1, outcome="done"),)
    assert proves(shown(S, boot_count=2), releases=sent) is StepKind.WATCH
    watched = (*sent, SentRelease(boot_count=2, outcome="done"))
    assert proves(shown(S, boot_count=2), releases=watched) is Wait
    assert proves(shown(boot_count=2), releases=watched) is StepKind.PROVE


def test_what_was_never_offered_needs_no_erasure() -> None:
    decision = plan(a_wanted(Phase.SANITIZING, kind="dcd"), shown())
    assert steps(decision) is StepKind.PROVE
    assert isinstance(decision, Do)
    assert decision.intent["method"] == "completion"


def test_memory_that_came_back_while_it_was_erased_is_quarantined() -> None:
    assert proves(shown(A), releases=(SentRelease(boot_count=1, outcome="done"),)) is Event.UNPROVABLE


@pytest.mark.parametrize(
    ("listed", "same"),
    [
        ({(0, 4)}, True),
        ({(0, 2), (2, 2)}, True),
        ({(0, 2)}, False),
        ({(0, 2), (3, 1)}, False),
        (set(), False),
    ],
)
def test_extents_may_be_cut_or_joined_by_the_device(listed: set[tuple[int, int]], same: bool) -> None:
    assert covers(listed, [(0, 1), (1, 3)]) is same


# Whatever is wanted and whatever is seen.

lives = st.sampled_from([None, 1, 2])
outcomes = st.sampled_from([None, "done", "refused", "busy", "unknown"])
wanteds = st.builds(
    a_wanted,
    st.sampled_from(Phase),
    kind=st.sampled_from(["mld", "dcd", "sld"]),
    goal=st.sampled_from([Goal.RELEASE, Goal.UNDO, Goal.UNBIND]),
    place=st.sampled_from([PLACE, WHOLE]),
    sanitize_on_release=st.booleans(),
    sanitized=st.booleans(),
    late=st.booleans(),
    offers=st.integers(0, OFFERS_MAX + 1),
    refusals=st.integers(0, REFUSALS_MAX + 1),
    exposed=st.booleans(),
    offered_in=st.lists(lives, max_size=2, unique=True).map(tuple),
    releases=st.lists(st.builds(SentRelease, boot_count=lives, outcome=outcomes), max_size=3).map(tuple),
)
vppbs = st.sampled_from(
    [None, FREE, BUSY, OURS, THEIRS, VppbFacts(number=1, state=VppbState.BOUND_PORT, port=8), replace(OURS, ld_id=3)]
)
extents = st.lists(
    st.builds(
        an_extent,
        st.sampled_from(ExtentState),
        start=st.sampled_from([0, GiB // 2, 4 * GiB]),
        size=st.sampled_from([GiB // 2, GiB]),
    ),
    max_size=3,
).map(tuple)
seens = st.builds(Seen, vppb=vppbs, extents=extents, device_background=st.none() | lives.map(in_life))

TAKES_AWAY = {StepKind.UNBIND, StepKind.RELEASE}


@given(wanteds, seens)
def test_there_is_always_a_legal_next_move(wanted: Wanted, seen: Seen) -> None:
    decision = plan(wanted, seen)
    if isinstance(decision, Settle):
        assert (wanted.phase, decision.event) in LIFECYCLE
    elif isinstance(decision, Do):
        assert decision.component in (wanted.serial, PLACE.switch)
    if wanted.phase not in DRIVEN:
        assert isinstance(decision, Wait)
        assert decision.quiet


@given(wanteds, seens)
def test_nothing_is_taken_from_a_host_before_it_let_go(wanted: Wanted, seen: Seen) -> None:
    decision = plan(wanted, seen)
    if isinstance(decision, Do) and decision.step in TAKES_AWAY:
        assert wanted.phase is Phase.RELEASING
    if isinstance(decision, Do) and decision.step is StepKind.WITHDRAW:
        assert wanted.phase in (Phase.RELEASING, Phase.BINDING)
        held = any(extent.state in (A, R) for extent in seen.extents)
        assert not held or wanted.phase is Phase.RELEASING
    if wanted.phase is Phase.RELEASE_BLOCKED and present(wanted, seen):
        assert isinstance(decision, Wait)


@given(wanteds, seens)
def test_bound_is_said_only_of_what_the_host_reaches(wanted: Wanted, seen: Seen) -> None:
    decision = plan(wanted, seen)
    if isinstance(decision, Settle) and decision.event is Event.BIND_READ_BACK:
        assert present(wanted, seen)
        if wanted.kind == "dcd":
            assert covers({(e.start_bytes, e.size_bytes) for e in seen.extents if e.state is A}, wanted.spans)


@given(wanteds, seens)
def test_what_a_host_may_have_seen_is_never_free_without_erasure(wanted: Wanted, seen: Seen) -> None:
    decision = plan(wanted, seen)
    if isinstance(decision, Settle) and advance(wanted.phase, decision.event) in (
        Phase.FAILED,
        Phase.RELEASED,
        Phase.RESERVED,
    ):
        assert wanted.sanitized or not wanted.exposed


@given(wanteds, seens)
def test_no_evidence_for_what_vanished_in_another_life(wanted: Wanted, seen: Seen) -> None:
    decision = plan(wanted, seen)
    if isinstance(decision, Do) and decision.step is StepKind.PROVE:
        assert wanted.phase is Phase.SANITIZING
        assert not seen.extents
        told = {sent.boot_count for sent in wanted.releases if sent.outcome not in ("refused", "busy")}
        erased_by_itself = wanted.sanitize_on_release and set(wanted.offered_in) == {seen.boot_count}
        assert seen.boot_count in told or erased_by_itself or not wanted.exposed


@given(wanteds, seens)
def test_the_same_snapshots_give_the_same_move(wanted: Wanted, seen: Seen) -> None:
    assert plan(wanted, seen) == plan(wanted, seen)


# Against a model of hardware that does what it is told.


@dataclass
class Ideal:
    """One vPPB and one device; each command takes effect at the next look, restarts keep everything."""

    kind: str
    host: str  # accept, refuse, partial, silent
    boot_count: int = 1
    vppb: VppbFacts = FREE
    extents: tuple[TaggedExtent, ...] = ()
    wanted: Wanted = field(init=False)

    def __post_init__(self) -> None:
        self.wanted = a_wanted(Phase.BINDING, kind=self.kind)

    def seen(self) -> Seen:
        return Seen(vppb=self.vppb, extents=self.extents, device_background=in_life(self.boot_count))

    def turn(self) -> None:
        decision = plan(self.wanted, self.seen())
        match decision:
            case Settle():
                goal = Goal.UNDO if decision.event is Event.UNDO else self.wanted.goal
                exposed = self.wanted.exposed or decision.event is Event.BIND_READ_BACK
                phase = advance(self.wanted.phase, decision.event)
                self.wanted = replace(self.wanted, phase=phase, goal=goal, exposed=exposed)
            case Do():
                self.obey(decision)
            case Wait():
                self.answer()

    def obey(self, step: Do) -> None:
        mine = self.wanted
        match step.step:
            case StepKind.BIND:
                self.vppb = OURS
                self.wanted = replace(mine, exposed=mine.exposed or self.kind != "dcd")
            case StepKind.UNBIND:
                self.vppb = FREE
            case StepKind.OFFER:
                self.extents = tuple(an_extent(OFFERED, start=start, size=size) for start, size in mine.spans)
                self.wanted = replace(mine, offers=mine.offers + 1, exposed=True, offered_in=(self.boot_count,))
            case StepKind.RELEASE | StepKind.WITHDRAW:
                after = R if step.step is StepKind.RELEASE else S
                self.extents = tuple(replace(extent, state=after) for extent in self.extents)
                sent = SentRelease(boot_count=step.intent["boot_count"], outcome="done")
                self.wanted = replace(mine, releases=(*mine.releases, sent))
            case StepKind.WATCH:
                sent = SentRelease(boot_count=step.intent["boot_count"], outcome="done")
                self.wanted = replace(mine, releases=(*mine.releases, sent))
            case StepKind.SANITIZE | StepKind.PROVE:
                self.wanted = replace(mine, sanitized=True)

    def answer(self) -> None:
        states = {extent.state for extent in self.extents}
        if S in states:
            self.extents = ()
        elif R in states:
            self.extents = tuple(replace(extent, state=S) for extent in self.extents)
        elif OFFERED in states and self.host != "silent":
            taken = {"accept": len(self.extents), "refuse": 0, "partial": 1}[self.host]
            self.extents = tuple(replace(extent, state=A) for extent in self.extents[:taken])
        else:
            self.wanted = replace(self.wanted, late=True)  # nobody moves but the clock


TURNS_MAX = 40


@given(
    kind=st.sampled_from(["mld", "dcd"]),
    host=st.sampled_from(["accept", "refuse", "partial", "silent"]),
    leave_at=st.none() | st.integers(0, 12),
    restart_at=st.none() | st.integers(0, 12),
)
def test_the_moves_lead_to_an_end(kind: str, host: str, leave_at: int | None, restart_at: int | None) -> None:
    """`leave_at`: the turn at which release is asked; `restart_at`: the device restarts and keeps its state."""
    model = Ideal(kind=kind, host=host)
    for turn in range(TURNS_MAX):
        if turn == restart_at:
            model.boot_count += 1
        if turn == leave_at and (model.wanted.phase, Event.RELEASE_WANTED) in LIFECYCLE:
            phase = advance(model.wanted.phase, Event.RELEASE_WANTED)
            model.wanted = replace(model.wanted, phase=phase, goal=Goal.RELEASE)
        model.turn()
    ends = {Phase.BOUND, Phase.RELEASED, Phase.FAILED} | ({Phase.QUARANTINED} if restart_at is not None else set())
    assert model.wanted.phase in ends
    if host == "accept" and leave_at is None and restart_at is None:
        assert model.wanted.phase is Phase.BOUND
    if model.wanted.phase in (Phase.RELEASED, Phase.FAILED):
        assert not model.extents
        assert kind == "dcd" or model.vppb == FREE
