"""Answers of the simulated rack as the facts the reconciler reads. Wire units end here."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from fabric_manager.southbound.driver import (
    BackgroundStatus,
    DcRegionFacts,
    DeviceFacts,
    ExtentState,
    LdFacts,
    PortFacts,
    RefusedError,
    SwitchFacts,
    TaggedExtent,
    VcsFacts,
    VppbFacts,
    VppbState,
)
from fabric_manager.southbound.simulator.topology import GRANULES

Answer = dict[str, Any]


def switch(identity: Answer, *, ports: Sequence[Answer], every_vcs: Sequence[Answer]) -> SwitchFacts:
    return SwitchFacts(
        name=identity["name"],
        serial=identity["serial"],
        hdm_decoders=identity["hdm_decoders"],
        ports=tuple(PortFacts(**port) for port in ports),
        vcs=tuple(map(vcs, every_vcs)),
        boot_count=identity["boot_count"],
    )


def vcs(answer: Answer) -> VcsFacts:
    vppbs = tuple(map(_vppb, answer["vppbs"]))
    return VcsFacts(number=answer["number"], upstream_port=answer["upstream_port"], vppbs=vppbs)


def device(
    identity: Answer, *, lds: Sequence[LdFacts] = (), lds_max: int | None = None, regions: Sequence[Answer] = ()
) -> DeviceFacts:
    return DeviceFacts(
        serial=identity["serial"],
        kind=identity["kind"],
        switch=identity["switch"],
        port=identity["port"],
        capacity_bytes=identity["capacity_bytes"],
        granule_bytes=identity["granule_bytes"],
        lds_max=identity["lds_max"] if lds_max is None else lds_max,
        lds=tuple(lds),
        dc_regions=tuple(_region(number, region) for number, region in enumerate(regions)),
        capabilities=frozenset(identity["capabilities"]),
        health=identity["health"],
        firmware=identity["firmware"],
        boot_count=identity["boot_count"],
    )


def lds(allocations: Answer, *, shares: Sequence[int], limits: Sequence[int]) -> tuple[LdFacts, ...]:
    """The LDs for which all three tables have a row."""
    granule_bytes, start = GRANULES[allocations["granularity"]], allocations["start"]
    rows = zip(allocations["multipliers"], shares, limits, strict=False)
    return tuple(
        LdFacts(ld_id=start + i, size_bytes=multiplier * granule_bytes, share_n=share, limit_n=limit)
        for i, (multiplier, share, limit) in enumerate(rows)
    )


def granules(sizes_bytes: Sequence[int], *, granularity: int) -> list[int]:
    granule_bytes = GRANULES[granularity]
    if odd := [size for size in sizes_bytes if size % granule_bytes]:
        raise RefusedError(f"{odd[0]} B is not a whole number of granules of {granule_bytes} B")
    return [size // granule_bytes for size in sizes_bytes]


def background(answer: Answer) -> BackgroundStatus:
    return BackgroundStatus(**answer)


def extent(answer: Answer) -> TaggedExtent:
    return TaggedExtent(
        start_bytes=answer["start"],
        size_bytes=answer["size"],
        tag=UUID(answer["tag"]),
        state=ExtentState(answer["state"]),
    )


def _vppb(answer: Answer) -> VppbFacts:
    return VppbFacts(
        number=answer["number"],
        state=VppbState(answer["status"]),
        port=answer.get("port"),
        ld_id=answer.get("ld_id"),
    )


def _region(number: int, answer: Answer) -> DcRegionFacts:
    return DcRegionFacts(
        number=number,
        base_bytes=answer["base"],
        size_bytes=answer["length"],
        block_bytes=answer["block"],
        sanitize_on_release=answer["sanitize_on_release"],
    )
