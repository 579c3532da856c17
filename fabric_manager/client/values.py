"""What goes over the wire, as values. A field that is not known here is ignored."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Who will use the memory. `uid` is the identity; a name may come back as somebody else."""

    kind: str
    cluster: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRequest:
    """What is asked for. What is None is left to the service's defaults."""

    tenant: str
    size_bytes: int
    host: str | None = None
    bind: bool | None = None
    pool: str | None = None
    device: str | None = None
    attachment: str | None = None
    consumer: Consumer | None = None
    deadline_s: int | None = None
    reservation_ttl_s: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> Document:
        return _without_none(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentState:
    """A host's word on one segment: `phase` is online, offline or offline_failed."""

    id: str
    phase: str
    numa_node: int | None = None
    dax_device: str | None = None

    def body(self) -> Document:
        return _without_none(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    switch: str
    vcs: int
    vppb: int
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A run [start, start + size) in one host's DPA space, in bytes."""

    start_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The part of an allocation on one device: exactly one of `logical_device` and `extents`."""

    id: str
    device: str
    logical_device: int | None
    extents: tuple[Span, ...] | None
    size_bytes: int
    binding: Binding | None
    phase: str | None = None
    min_bandwidth: int = 0
    node_state: str | None = None
    numa_node: int | None = None
    dax_device: str | None = None


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
    id: str
    goal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a key stands for, at one generation. `document` is the whole answer."""

    key: str
    id: str
    tenant: str
    phase: str
    generation: int
    size_bytes: int
    granted_bytes: int
    pool: str | None
    host: str | None
    consumer: Consumer | None
    segments: tuple[Segment, ...]
    conditions: tuple[Condition, ...]
    failure: Failure | None
    operation: OperationRef | None
    created_at: datetime
    updated_at: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The answer to a PUT. `replayed`: the key was there before, maybe from a try of this call that lost its answer."""

    allocation: Allocation
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A device that could hold the request now. `why` tells its place against the one before it."""

    rank: int
    device: str
    pool: str
    granted_bytes: int
    waste_bytes: int
    free_bytes: int
    latency_ns: int
    why: str
    decided_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """A dry run's answer: candidates, best first, or the refusal; the funnel in both cases."""

    candidates: tuple[Candidate, ...]
    largest_fit_bytes: int
    refusal: Document | None
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    id: str
    goal: str
    state: str
    reason: str = ""
    attempts: int = 0
    allocation: str | None = None
    percent: int | None = None
    eta_ms: int | None = None
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricEvent:
    """One change, numbered without gaps. `before` and `after` hold what changed."""

    seq: int
    at: datetime
    type: str
    object_kind: str | None = None
    object_id: str | None = None
    key: str | None = None
    claim_uid: str | None = None
    cluster: str | None = None
    tenant: str | None = None
    host: str | None = None
    device: str | None = None
    pool: str | None = None
    before: Document | None = None
    after: Document | None = None
    actor: str | None = None
    request_id: str | None = None
    cause: str | None = None
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """`next_since` is where the next page begins; `as_of` is the last event's number, of whatever kind."""

    items: tuple[FabricEvent, ...]
    next_since: int
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One line of an allocation's story. `kind` is event, step, frame or evidence; `facts` are what that kind shows."""

    at: datetime
    kind: str
    title: str
    facts: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """`truncated`: the story is longer, and this is its latest part."""

    entries: tuple[TimelineEntry, ...]
    truncated: bool
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    examined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    name: str
    objects: tuple[Any, ...]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariants:
    """The service's promises, checked on its live database."""

    as_of: int
    checks: tuple[Check, ...]
    violations: tuple[Violation, ...]
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """`document` says why not; `at` is the service's clock, when it tells it."""

    ready: bool
    document: Document
    at: datetime | None = None


def _without_none(members: Document) -> Document:
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in members.items()
        if value is not None
    }
