"""Which device first. Pure: the same candidates give the same order."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A device that had room when it was read. `granted_bytes` is what the request would take of it."""

    number: int
    granted_bytes: int
    free_bytes: int
    latency_ns: int


def rank(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Least waste, then lowest latency, then the fullest device so that large room stays whole; ties by number."""
    return sorted(candidates, key=lambda c: (c.granted_bytes, c.latency_ns, c.free_bytes, c.number))
