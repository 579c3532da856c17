"""The parts of a fabric, as the database knows them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What one driver endpoint manages. `epoch` rises with each owner; `owner` is the process that drives it now."""

    id: UUID
    name: str
    driver: str
    endpoint: str
    admin_state: str  # active, paused, maintenance
    state: str  # up, degraded, unreachable
    state_reason: str | None
    owner: str | None
    epoch: int
    generation: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBytes:
    """A device's counters, in bytes; the last five add up to the first."""

    capacity_bytes: int
    free_bytes: int
    allocated_bytes: int
    sanitizing_bytes: int
    quarantined_bytes: int
    withdrawn_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A memory device. `fixed_sizes` are the LD sizes it can hand out, empty for dynamic capacity."""

    id: UUID
    number: int
    name: str
    fabric: str
    switch: str | None
    port: int | None
    serial: str
    kind: str  # sld, mld, dcd
    pool: str | None
    bytes: DeviceBytes
    granule_bytes: int
    allocation_step_bytes: int
    fixed_sizes: tuple[int, ...]
    lds_max: int
    bandwidth_bytes_per_s: int
    latency_ns: int
    tier: str | None
    media: str | None
    failure_domain: str | None
    labels: Mapping[str, str]
    reserved_for: tuple[str, ...]  # cluster:<name>, tenant:<name>; empty is everybody
    capabilities: tuple[str, ...]
    health: str  # ok, degraded, failed, unknown
    firmware: str
    admin_state: str  # enabled, cordoned, draining, maintenance
    generation: int
    created_at: datetime
    updated_at: datetime
    publishable_bytes: int | None = None  # to one cluster's scheduler, where one was named


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalDevice:
    """A slice of an MLD without visible address; it goes whole to one host. `allocation` is the key that holds it."""

    id: UUID
    device: str
    ld_id: int
    size_bytes: int
    dirty: bool
    share_n: int
    limit_n: int
    allocation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """A run of a DCD in one host's DPA space (`dpa_space` is the host's LD id). Tag = segment id."""

    id: UUID
    device: str
    dpa_space: int
    start_bytes: int
    size_bytes: int
    tag: UUID
    number: int  # among those of its tag
    allocation: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """host × device. `ld_id` is an MLD's LD or the host's interface on a dynamic-capacity device."""

    id: UUID
    host: str
    device: str
    switch: str
    port: int
    vcs: int
    vppb: int
    ld_id: int | None
    kind: str
    state: str  # wanted, bound
    share_n: int
    limit_n: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Homogeneous devices; bytes are the sum of their counters. `largest_fit_bytes` is the largest single grant."""

    id: UUID
    name: str
    kind: str
    tier: str | None
    labels: Mapping[str, str]
    devices: int
    bytes: DeviceBytes
    largest_fit_bytes: int
    allocation_step_bytes: int | None
    fixed_sizes: tuple[int, ...]
    generation: int
    created_at: datetime
    updated_at: datetime
    publishable_bytes: int | None = None  # to one cluster's scheduler, where one was named


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    switch: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine on upstream ports. `epoch` is issued by us and raised only by a new boot_id."""

    id: UUID
    name: str
    ports: tuple[HostPort, ...]
    cluster: str | None
    node: str | None
    node_uid: str | None
    vppbs_max: int | None
    decoders_max: int | None
    labels: Mapping[str, str]
    boot_id: str | None
    epoch: int
    fenced: bool
    generation: int
    created_at: datetime
    updated_at: datetime
