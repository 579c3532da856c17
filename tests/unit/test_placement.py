"""Which device first, and why none: both pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_manager.domain.errors import Code
from fabric_manager.domain.units import GiB
from fabric_manager.policy.placement import Candidate, places, rank
from fabric_manager.policy.refusal import CODES, Funnel, Step, refuse

FILTERS = tuple(CODES)  # in the order in which they are applied
sizes = st.sampled_from([GiB, 2 * GiB, 64 * GiB])
candidates = st.lists(
    st.builds(
        Candidate, number=st.integers(1, 99), granted_bytes=sizes, free_bytes=sizes, latency_ns=st.integers(100, 102)
    ),
    max_size=12,
    unique_by=lambda candidate: candidate.number,
)


def a_candidate(number: int, *, granted: int = GiB, free: int = 64 * GiB, latency_ns: int = 250) -> Candidate:
    return Candidate(number=number, granted_bytes=granted, free_bytes=free, latency_ns=latency_ns)


def a_funnel(*left: int, free: int = 0, fit: int = 0, soon: int = 0, undiscovered: int = 0) -> Funnel:
    """`left` after each filter, in order; those not given let the last number pass."""
    counts = [*left, *[left[-1]] * (len(FILTERS) - len(left))]
    return Funnel(
        steps=tuple(Step(filter=name, left=count) for name, count in zip(FILTERS, counts, strict=True)),
        undiscovered=undiscovered,
        free_bytes=free,
        largest_fit_bytes=fit,
        largest_fit_soon_bytes=soon,
    )


@given(candidates, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_the_order_of_reading(found: list[Candidate], chance: object) -> None:
    shuffled = sorted(found, key=lambda _: chance.random())  # type: ignore[attr-defined]
    ranked = rank(found)
    assert rank(shuffled) == ranked
    assert sorted(ranked, key=lambda c: c.number) == sorted(found, key=lambda c: c.number)


@given(candidates)
def test_nothing_that_wastes_less_comes_later(found: list[Candidate]) -> None:
    granted = [candidate.granted_bytes for candidate in rank(found)]
    assert granted == sorted(granted)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (a_candidate(2, granted=GiB, latency_ns=900), a_candidate(1, granted=2 * GiB, latency_ns=100)),
        (a_candidate(2, latency_ns=100, free=64 * GiB), a_candidate(1, latency_ns=900, free=GiB)),
        (a_candidate(2, free=2 * GiB), a_candidate(1, free=64 * GiB)),
        (a_candidate(1), a_candidate(2)),
    ],
    ids=["least waste", "then latency", "then the fullest", "then the number"],
)
def test_the_criteria_come_in_their_order(first: Candidate, second: Candidate) -> None:
    assert rank([second, first]) == [first, second]


@pytest.mark.parametrize("emptied", FILTERS)
def test_the_code_is_that_of_the_filter_that_removed_the_last_candidate(emptied: str) -> None:
    survivors = FILTERS.index(emptied)
    error = refuse(GiB, a_funnel(*range(survivors, -1, -1)))
    assert error.code is CODES[emptied]
    assert error.facts["funnel"][survivors] == {"filter": emptied, "left": 0}
    assert str(error)


def test_every_filter_has_a_code_and_every_refusal_a_sentence_for_people() -> None:
    sentences = {str(refuse(GiB, a_funnel(*range(n, -1, -1)))) for n in range(len(FILTERS))}
    assert len(sentences) == len(FILTERS)


def test_devices_not_read_yet_are_waited_for() -> None:
    error = refuse(GiB, a_funnel(2, 0, undiscovered=2))
    assert error.code is Code.FABRIC_UNREACHABLE
    assert error.retryable


@pytest.mark.parametrize(
    ("free", "fit", "code"),
    [
        (4 * GiB, GiB, Code.FRAGMENTATION),
        (2 * GiB, GiB, Code.FRAGMENTATION),
        (GiB, GiB, Code.INSUFFICIENT_CAPACITY),
        (0, 0, Code.INSUFFICIENT_CAPACITY),
        (4 * GiB, 4 * GiB, Code.INSUFFICIENT_CAPACITY),  # room came back meanwhile
    ],
)
def test_fragmentation_is_enough_bytes_in_too_small_pieces(free: int, fit: int, code: Code) -> None:
    full = a_funnel(3, 3, 3, 3, 3, 3, 3, 0, free=free, fit=fit)
    error = refuse(2 * GiB, full)
    assert error.code is code
    assert error.facts["largest_fit_bytes"] == fit


@pytest.mark.parametrize(("soon", "helps"), [(GiB, False), (2 * GiB, True), (4 * GiB, True)])
def test_waiting_helps_exactly_when_what_comes_back_is_enough(soon: int, helps: bool) -> None:
    error = refuse(2 * GiB, a_funnel(3, 3, 3, 3, 3, 3, 3, 0, fit=GiB, soon=soon))
    assert error.facts["waiting_helps"] is helps
    assert error.retryable is helps
    assert error.terminal_for == (None if helps else "placement")


@given(st.integers(0, len(FILTERS) - 2), sizes)
def test_waiting_for_bytes_helps_nobody_whom_another_filter_removed(emptied: int, soon: int) -> None:
    error = refuse(GiB, a_funnel(*range(emptied, -1, -1), soon=soon))
    assert not error.facts["waiting_helps"]


@given(candidates)
def test_every_place_is_told_against_the_one_before_it(found: list[Candidate]) -> None:
    ranked = rank(found)
    told = places(ranked)
    assert [place.candidate for place in told] == ranked
    for better, place in zip(ranked, told[1:], strict=False):
        assert place.decided_by is not None
        assert getattr(better, place.decided_by) < getattr(place.candidate, place.decided_by)
        assert place.why
