"""The parts of CXL switches, and what is bound through them."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fabric_manager.domain.lifecycle import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """`hdm_decoders` limits how many address ranges it can route."""

    id: UUID
    name: str
    fabric: str | None
    serial: str
    hdm_decoders: int
    boot_count: int | None
    ports: int
    vcs: int
    generation: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A physical port. `device` and `host` are who hangs on it, where that is known."""

    id: UUID
    switch: str
    number: int
    role: str  # upstream, downstream, fabric, disabled
    device: str | None
    device_serial: str | None
    host: str | None
    link_width: int
    link_width_max: int
    link_speed_gt: int
    link_speed_gt_max: int
    generation: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Vppb:
    """As last read from the switch; `attachment` is the one of ours that it should carry."""

    number: int
    state: str  # free, busy, bound_port, bound_ld
    port: int | None
    ld_id: int | None
    attachment: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vcs:
    """One virtual switch for each host port."""

    id: UUID
    switch: str
    number: int
    upstream_port: int
    host: str | None
    vppbs: tuple[Vppb, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentBinding:
    """Segment × attachment: which part of an allocation a host reaches where. `id` is the segment's."""

    id: UUID
    allocation: str
    tenant: str
    host: str
    device: str
    ld_id: int | None
    size_bytes: int
    attachment: UUID
    switch: str
    port: int
    vcs: int
    vppb: int
    phase: Phase
    node_state: str | None
    verified_at: datetime | None
    created_at: datetime
