"""Which device first. Pure: the same candidates give the same order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from fabric_manager.domain.units import format_size

# What is compared, in this order; less is better. The fullest device comes first so that large room stays whole.
CRITERIA = ("granted_bytes", "latency_ns", "free_bytes", "number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A device that had room when it was read. `granted_bytes` is what the request would take of it."""

    number: int
    granted_bytes: int
    free_bytes: int
    latency_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A candidate's place in the ranking. `decided_by`: the first criterion in which the one before it is better."""

    candidate: Candidate
    decided_by: str | None
    why: str


def rank(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Least waste, then lowest latency, then the fullest device; ties by number."""
    return sorted(candidates, key=attrgetter(*CRITERIA))


def places(ranked: Sequence[Candidate]) -> list[Place]:
    """Why each stands where it does, told against the one before it."""
    if not ranked:
        return []
    first = Place(
        candidate=ranked[0],
        decided_by=None,
        why="the least waste, then the lowest latency, then the fullest device" if ranked[1:] else "the only one",
    )
    return [first, *(after(better, worse) for better, worse in pairwise(ranked))]


def after(better: Candidate, worse: Candidate) -> Place:
    decided_by = next(name for name in CRITERIA if getattr(better, name) != getattr(worse, name))
    more = getattr(worse, decided_by) - getattr(better, decided_by)
    why = {
        "granted_bytes": f"wastes {format_size(more)} more than the one before it",
        "latency_ns": f"wastes as little as the one before it, and is {more} ns slower",
        "free_bytes": f"as good as the one before it, with {format_size(more)} more free that is better kept whole",
        "number": "equal to the one before it; the lower device number goes first",
    }
    return Place(candidate=worse, decided_by=decided_by, why=why[decided_by])
