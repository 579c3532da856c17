"""Extents of one host's address space, and the checks an offer must pass."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from fabric_manager.southbound.driver import ExtentState
from fabric_manager.southbound.simulator.codes import Code, CommandError
from fabric_manager.southbound.simulator.memory import Run, cut_runs
from fabric_manager.southbound.simulator.topology import RegionPlan

REACHABLE = (ExtentState.ACCEPTED, ExtentState.RELEASE_REQUESTED)  # a host can read and write it


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """[start, start + size) of a host's address space, backed by physical `runs` of the same total size."""

    start_bytes: int
    size_bytes: int
    tag: str
    state: ExtentState
    sanitize: bool  # erase once the host has given it back
    runs: tuple[Run, ...]

    @property
    def end_bytes(self) -> int:
        return self.start_bytes + self.size_bytes

    def shown(self) -> dict[str, Any]:
        """As 5603h lists it, with the state that real hardware keeps to itself."""
        return {"start": self.start_bytes, "size": self.size_bytes, "tag": self.tag, "state": self.state.value}

    def kept(self) -> dict[str, Any]:
        return {**self.shown(), "sanitize": self.sanitize, "runs": self.runs}


def extent_from_kept(kept: dict[str, Any]) -> Extent:
    return Extent(
        start_bytes=kept["start"],
        size_bytes=kept["size"],
        tag=kept["tag"],
        state=ExtentState(kept["state"]),
        sanitize=kept["sanitize"],
        runs=tuple((start, size) for start, size in kept["runs"]),
    )


def check_spans(spans: Sequence[Run], *, region: RegionPlan, block_bytes: int, space: Iterable[Extent]) -> None:
    """Whether `spans` may be offered into `space`: whole blocks, inside the region, over nothing and not each other."""
    if not spans:
        raise CommandError(Code.INVALID_EXTENT_LIST, "no extent was given")
    for start, size in spans:
        if size <= 0 or start % block_bytes or size % block_bytes:
            raise CommandError(Code.INVALID_INPUT, f"[{start}, +{size}) is not in whole blocks of {block_bytes} B")
        if start < region.base_bytes or start + size > region.base_bytes + region.size_bytes:
            raise CommandError(Code.INVALID_EXTENT_LIST, f"[{start}, +{size}) leaves the region")
    # In order of address each run can only collide with its neighbor.
    taken = sorted([*spans, *((e.start_bytes, e.size_bytes) for e in space)])
    for (start, size), (following, _) in pairwise(taken):
        if start + size > following:
            raise CommandError(Code.INVALID_EXTENT_LIST, f"{following} is in use already in this address space")


def first_half(extent: Extent, *, block_bytes: int) -> tuple[Extent | None, tuple[Run, ...]]:
    """The first half in whole blocks, with the runs of the other half; None when there is only one block."""
    half_bytes = extent.size_bytes // block_bytes // 2 * block_bytes
    first, rest = cut_runs(extent.runs, half_bytes)
    kept = replace(extent, size_bytes=half_bytes, runs=tuple(first)) if half_bytes else None
    return kept, tuple(rest)


def locate(space: Iterable[Extent], *, address: int, size_bytes: int) -> list[Run]:
    """Physical runs behind [address, + size_bytes); CommandError unless the host has been given all of it."""
    at, end = address, address + size_bytes
    found: list[Run] = []
    for extent in sorted(space, key=lambda e: e.start_bytes):
        if extent.state in REACHABLE and extent.start_bytes <= at < extent.end_bytes and at < end:
            piece_bytes = min(end, extent.end_bytes) - at
            _, tail = cut_runs(extent.runs, at - extent.start_bytes)
            found += cut_runs(tail, piece_bytes)[0]
            at += piece_bytes
    if at < end:
        raise CommandError(Code.INVALID_PHYSICAL_ADDRESS, f"nothing was given to this host at {at}")
    return found
