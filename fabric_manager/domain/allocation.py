"""One consumer's hold on capacity: what was asked (Order) and what is held (Allocation)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from fabric_manager.domain.lifecycle import Goal, Phase

RESOURCE_CLAIM = "ResourceClaim"
RESERVATION_TTL_S_RESOURCE_CLAIM = 900
DEADLINE_S_DEFAULT = 300
SIZE_BYTES_MAX = (1 << 53) - 1


class AttachmentKind(StrEnum):
    """How a host reaches the memory: a whole LD of an MLD, or extents of a dynamic-capacity device."""

    LOGICAL_DEVICE = "logical-device"
    DYNAMIC_CAPACITY = "dynamic-capacity"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Who will use it. `uid` is the identity; a name may come back as somebody else."""

    kind: str
    cluster: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request for capacity, defaults filled in. `reservation_ttl_s` None: the reservation does not expire."""

    key: str
    tenant: str
    size_bytes: int
    host: str | None = None
    bind: bool = True
    pool: str | None = None
    device: str | None = None
    attachment: AttachmentKind = AttachmentKind.ANY
    consumer: Consumer | None = None
    deadline_s: int = DEADLINE_S_DEFAULT
    reservation_ttl_s: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.size_bytes <= SIZE_BYTES_MAX:
            raise ValueError(f"size_bytes is {self.size_bytes}; it must be from 1 to {SIZE_BYTES_MAX}")
        if self.pool is not None and self.device is not None:
            raise ValueError("name a pool or a device, not both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Where the segment hangs on the switch. `phase` is the segment's."""

    switch: str
    vcs: int
    vppb: int
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A run [start, start + size) in one host's DPA space, in bytes."""

    start_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The part of an allocation on one device: exactly one of `logical_device` and `extents`.

    `extents` is empty while the spans are not chosen; `node_state` is the host's last word on it.
    """

    id: UUID
    device: str
    logical_device: int | None
    extents: tuple[Span, ...] | None
    size_bytes: int
    min_bandwidth: int
    phase: Phase
    goal: Goal
    binding: Binding | None
    node_state: str | None
    numa_node: int | None
    dax_device: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    type: str
    status: str  # "True" or "False", as in Kubernetes
    reason: str
    message: str
    last_transition_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    code: str
    retryable: bool
    terminal_for: str | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRef:
    id: UUID
    goal: Goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a key stands for, at one generation. `operation` is there while work remains."""

    key: str
    id: UUID
    tenant: str
    phase: Phase
    goal: Goal
    generation: int
    request: Mapping[str, Any]
    size_bytes: int
    granted_bytes: int
    pool: str | None
    host: str | None
    qos_class: str
    isolation: str
    consumer: Consumer | None
    labels: Mapping[str, str]
    segments: tuple[Segment, ...]
    conditions: tuple[Condition, ...]
    failure: Failure | None
    operation: OperationRef | None
    reservation_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
