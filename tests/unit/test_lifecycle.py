"""The life of a segment: what may follow what, and what an allocation shows of it."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_manager.domain.lifecycle import (
    LIFECYCLE,
    LIVE,
    PRECEDENCE,
    TERMINAL,
    Bucket,
    Event,
    IllegalTransitionError,
    Phase,
    advance,
    allocation_phase,
    bucket,
)
from tests.unit.lifecycle_diagram import PAGE, page

P, E = Phase, Event


def into(phase: Phase) -> set[Phase]:
    return {before for (before, _), after in LIFECYCLE.items() if after is phase}


def between(start: Phase, end: Phase) -> set[Event]:
    return {event for (before, event), after in LIFECYCLE.items() if (before, after) == (start, end)}


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, Event)))
def test_a_pair_outside_the_table_is_an_error(phase: Phase, event: Event) -> None:
    if (phase, event) in LIFECYCLE:
        assert advance(phase, event) is LIFECYCLE[phase, event]
        return
    with pytest.raises(IllegalTransitionError, match=f"a segment that is {phase} cannot take {event}") as refused:
        advance(phase, event)
    assert (refused.value.phase, refused.value.event) == (phase, event)


def test_memory_a_host_has_seen_becomes_free_only_after_sanitizing() -> None:
    assert into(P.RELEASED) == {P.RESERVED, P.SANITIZING, P.FAILED}  # the first: no host ever had it
    assert into(P.FAILED) == {P.BINDING, P.SANITIZING}
    assert between(P.BINDING, P.FAILED) == {E.BIND_UNTOUCHED}  # proven that hardware is as before


def test_memory_that_a_host_uses_is_taken_only_by_the_hosts_word_or_on_record() -> None:
    leaving = {(event, after) for (before, event), after in LIFECYCLE.items() if before is P.ONLINE}
    assert leaving == {
        (E.NODE_OFFLINE, P.BOUND),
        (E.NEW_BOOT, P.BOUND),
        (E.RELEASE_WANTED, P.RELEASE_BLOCKED),
        (E.UNBIND_WANTED, P.RELEASE_BLOCKED),
        (E.GONE, P.LOST),
        (E.IDENTITY_CHANGED, P.QUARANTINED),
        (E.FORCED, P.QUARANTINED),
    }
    taking = {
        event for (before, event), after in LIFECYCLE.items() if (before, after) == (P.RELEASE_BLOCKED, P.RELEASING)
    }
    assert taking == {E.NODE_OFFLINE, E.NEW_BOOT, E.FENCED, E.GONE}


def test_no_timer_moves_memory_that_hardware_was_asked_for() -> None:
    assert {before for before, event in LIFECYCLE if event is E.EXPIRED} == {P.RESERVED, P.FAILED}


def test_only_an_operator_ends_a_quarantine() -> None:
    leaving = {event for before, event in LIFECYCLE if before is P.QUARANTINED}
    assert leaving == {E.CLEARED_RELEASING, E.CLEARED_SANITIZING}


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_be_reached_and_can_end(phase: Phase) -> None:
    assert phase in reachable(P.RESERVED)
    assert P.RELEASED in reachable(phase)


def reachable(start: Phase) -> set[Phase]:
    found = {start}
    while more := {after for (before, _), after in LIFECYCLE.items() if before in found} - found:
        found |= more
    return found


def test_every_event_means_something() -> None:
    assert {event for _, event in LIFECYCLE} == set(Event)


def test_live_is_every_phase_that_holds_bytes() -> None:
    assert frozenset(Phase) == LIVE | TERMINAL
    assert {phase for phase in Phase if bucket(phase) is not Bucket.FREE} == LIVE


@pytest.mark.parametrize("phase", Phase)
def test_bytes_are_counted_where_the_phase_says(phase: Phase) -> None:
    expected = {P.SANITIZING: Bucket.SANITIZING, P.QUARANTINED: Bucket.QUARANTINED}
    default = Bucket.FREE if phase in (P.FAILED, P.RELEASED) else Bucket.ALLOCATED
    assert bucket(phase) is expected.get(phase, default)


def test_the_order_of_urgency_names_every_phase_but_the_end() -> None:
    assert set(PRECEDENCE) == set(Phase) - {P.RELEASED}
    assert len(PRECEDENCE) == len(set(PRECEDENCE))


@given(st.lists(st.sampled_from(Phase)))
def test_an_allocation_shows_its_most_urgent_segment(phases: list[Phase]) -> None:
    shown = allocation_phase(phases)
    unreleased = [phase for phase in phases if phase is not P.RELEASED]
    if not unreleased:
        assert shown is P.RELEASED
    else:
        assert shown in unreleased
        assert all(PRECEDENCE.index(shown) <= PRECEDENCE.index(phase) for phase in unreleased)


def test_an_allocation_is_bound_or_online_only_as_a_whole() -> None:
    assert allocation_phase([P.ONLINE, P.BOUND]) is P.BOUND
    assert allocation_phase([P.ONLINE, P.BINDING]) is P.BINDING
    assert allocation_phase([P.ONLINE, P.RELEASED]) is P.ONLINE
    assert allocation_phase([P.BOUND, P.LOST, P.QUARANTINED]) is P.QUARANTINED


def test_the_picture_in_the_docs_is_the_table() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.unit.lifecycle_diagram`"
