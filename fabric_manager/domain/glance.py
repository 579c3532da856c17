"""The whole at a glance: sums, the graph, and what somebody should look at."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from fabric_manager.domain.inventory import DeviceBytes
from fabric_manager.domain.lifecycle import Goal
from fabric_manager.domain.switches import Vppb


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of some devices by bucket, and of the live segments on them by phase."""

    devices: int
    bytes: DeviceBytes
    bytes_by_phase: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMemory:
    """`pool` is None for devices that are in none."""

    pool: str | None
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestOperation:
    id: UUID
    goal: Goal
    allocation: str | None
    reason: str
    created_at: datetime
    age_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`refusals` are counted since the database was made; released allocations are history and not counted."""

    total: Memory
    pools: tuple[PoolMemory, ...]
    allocations: Mapping[str, int]
    refusals: Mapping[str, int]
    fabrics: Mapping[str, int]
    hosts: Mapping[str, int]  # fenced, reporting (its node has told its boot id), silent
    devices: Mapping[str, int]  # by health
    operations: Mapping[str, int]  # unfinished ones, by state
    oldest_operation: OldestOperation | None


class Severity(StrEnum):
    CRITICAL = "critical"  # memory is lost to somebody, or may be
    WARNING = "warning"  # it goes on, and not for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A condition that is so now. `object` is the name or key of what it is about."""

    kind: str
    severity: Severity
    object_kind: str
    object: str
    since: datetime
    age_s: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricNode:
    id: UUID
    name: str
    state: str
    admin_state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchNode:
    id: UUID
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PortNode:
    id: UUID
    switch: str
    number: int
    role: str
    link_width: int
    link_width_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VcsNode:
    id: UUID
    switch: str
    number: int
    vppbs: tuple[Vppb, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    id: UUID
    name: str
    kind: str
    pool: str | None
    health: str
    admin_state: str
    capacity_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNode:
    id: UUID
    name: str
    cluster: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """From one node to another. An `attached` one runs through a vPPB of `vcs`."""

    kind: str  # has_switch, has_port, has_vcs, upstream, plugged, attached
    source: UUID
    target: UUID
    attachment: UUID | None = None
    vcs: UUID | None = None
    vppb: int | None = None
    ld_id: int | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The graph in one snapshot; `truncated` names the parts of which there are more."""

    fabrics: tuple[FabricNode, ...]
    switches: tuple[SwitchNode, ...]
    ports: tuple[PortNode, ...]
    vcs: tuple[VcsNode, ...]
    devices: tuple[DeviceNode, ...]
    hosts: tuple[HostNode, ...]
    edges: tuple[Edge, ...]
    truncated: tuple[str, ...]
