"""What goes out: the shape of every answer, and how the domain's values become it.

The models describe; answers are plain dicts, because validating a full page costs ten times what encoding it does.
A test holds every answer against its model.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from fabric_manager.domain.allocation import Allocation, Binding, Segment
from fabric_manager.domain.inventory import Device, Pool
from fabric_manager.domain.lifecycle import Goal, Phase
from fabric_manager.domain.operation import FabricEvent, OperationState, TimelineEntry


class View(BaseModel):
    """Clients ignore fields that they do not know: more may come."""


class Page(View):
    next_cursor: str | None = Field(description="Give it as `cursor` for the next page; null on the last one.")
    as_of: int = Field(description="Number of the last event in this page's snapshot.")


class FieldError(View):
    field: str
    message: str


class Problem(View):
    """RFC 9457. Facts of the refusal follow as further members."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str = Field(description="Stable: branch on it.")
    request_id: str
    retryable: bool = Field(description="Whether the same request may succeed later.")
    retry_after_ms: int | None
    terminal_for: str | None = Field(description="The widest thing that cannot succeed: placement, host or claim.")
    errors: list[FieldError] | None = Field(None, description="With validation_failed: what is wrong where.")


class ConsumerView(View):
    kind: str
    cluster: str | None
    namespace: str | None
    name: str | None
    uid: str | None


class SpanView(View):
    start_bytes: int
    size_bytes: int


class BindingView(View):
    switch: str
    vcs: int
    vppb: int
    phase: Phase


class SegmentView(View):
    id: UUID
    device: str
    logical_device: int | None
    extents: list[SpanView] | None
    size_bytes: int
    min_bandwidth: int
    phase: Phase
    binding: BindingView | None
    node_state: str | None
    numa_node: int | None
    dax_device: str | None


class ConditionView(View):
    type: str
    status: str
    reason: str
    message: str
    last_transition_at: datetime


class FailureView(View):
    code: str
    retryable: bool
    terminal_for: str | None
    detail: str


class OperationRefView(View):
    id: UUID
    goal: Goal


class AllocationView(View):
    key: str
    id: UUID
    tenant: str
    phase: Phase
    goal: Goal
    generation: int
    request: dict[str, Any] = Field(description="What was asked, defaults filled in.")
    size_bytes: int
    granted_bytes: int
    pool: str | None
    host: str | None
    qos_class: str
    isolation: str
    consumer: ConsumerView | None
    labels: dict[str, str]
    segments: list[SegmentView]
    conditions: list[ConditionView]
    failure: FailureView | None
    operation: OperationRefView | None = Field(description="Present while work remains.")
    reservation_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime


class AllocationPage(Page):
    items: list[AllocationView]


class CandidateView(View):
    rank: int
    device: str
    pool: str
    granted_bytes: int
    waste_bytes: int = Field(description="Granted beyond what was asked, by the device's steps or sizes.")
    free_bytes: int
    latency_ns: int
    decided_by: str | None = Field(description="The first criterion in which the one before it is better.")
    why: str


class FilterView(View):
    filter: str
    left: int = Field(description="Devices that passed this filter and all before it.")


class RefusalView(View):
    """What the request itself would be refused with."""

    code: str
    detail: str
    retryable: bool
    terminal_for: str | None
    waiting_helps: bool
    largest_fit_bytes: int


class CandidatesView(View):
    size_bytes: int
    candidates: list[CandidateView] = Field(description="Best first; empty when it would be refused.")
    funnel: list[FilterView]
    largest_fit_bytes: int = Field(description="The most that one request of this kind could get now.")
    refusal: RefusalView | None


class FabricView(View):
    id: UUID
    name: str
    driver: str
    endpoint: str
    admin_state: str
    state: str
    state_reason: str | None
    owner: str | None
    epoch: int
    generation: int
    created_at: datetime
    updated_at: datetime


class FabricPage(Page):
    items: list[FabricView]


class BytesView(View):
    capacity_bytes: int
    free_bytes: int
    allocated_bytes: int
    sanitizing_bytes: int
    quarantined_bytes: int
    withdrawn_bytes: int


class DeviceView(BytesView):
    id: UUID
    number: int
    name: str
    fabric: str
    switch: str | None
    port: int | None
    serial: str
    kind: str
    pool: str | None
    granule_bytes: int
    allocation_step_bytes: int
    fixed_sizes: list[int]
    lds_max: int
    bandwidth_bytes_per_s: int
    latency_ns: int
    tier: str | None
    media: str | None
    failure_domain: str | None
    labels: dict[str, str]
    reserved_for: list[str]
    capabilities: list[str]
    health: str
    firmware: str
    admin_state: str
    generation: int
    created_at: datetime
    updated_at: datetime
    publishable_bytes: int | None = Field(None, description="Only with `?cluster=`.")


class DevicePage(Page):
    items: list[DeviceView]


class LogicalDeviceView(View):
    id: UUID
    device: str
    ld_id: int
    size_bytes: int
    dirty: bool
    share_n: int
    limit_n: int
    allocation: str | None


class LogicalDevicePage(Page):
    items: list[LogicalDeviceView]


class ExtentView(View):
    id: UUID
    device: str
    dpa_space: int
    start_bytes: int
    size_bytes: int
    tag: UUID
    number: int
    allocation: str
    host: str


class ExtentPage(Page):
    items: list[ExtentView]


class AttachmentView(View):
    id: UUID
    host: str
    device: str
    switch: str
    port: int
    vcs: int
    vppb: int
    ld_id: int | None
    kind: str
    state: str
    share_n: int
    limit_n: int
    created_at: datetime


class AttachmentPage(Page):
    items: list[AttachmentView]


class HostPortView(View):
    switch: str
    port: int


class HostView(View):
    id: UUID
    name: str
    ports: list[HostPortView]
    cluster: str | None
    node: str | None
    node_uid: str | None
    vppbs_max: int | None
    decoders_max: int | None
    labels: dict[str, str]
    boot_id: str | None
    epoch: int
    fenced: bool
    generation: int
    created_at: datetime
    updated_at: datetime


class HostPage(Page):
    items: list[HostView]


class PoolView(BytesView):
    id: UUID
    name: str
    kind: str
    tier: str | None
    labels: dict[str, str]
    devices: int
    largest_fit_bytes: int
    allocation_step_bytes: int | None
    fixed_sizes: list[int]
    generation: int
    created_at: datetime
    updated_at: datetime
    publishable_bytes: int | None = Field(None, description="Only with `?cluster=`.")


class PoolPage(Page):
    items: list[PoolView]


class OperationView(View):
    id: UUID
    goal: Goal
    state: OperationState
    allocation: str | None
    fabric: str | None
    reason: str
    attempts: int
    deadline_at: datetime | None
    percent: int | None
    eta_ms: int | None
    actor: str
    request_id: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    generation: int


class OperationPage(Page):
    items: list[OperationView]


class EventView(View):
    seq: int
    at: datetime
    type: str
    object_kind: str
    object_id: str
    key: str | None
    claim_uid: str | None
    cluster: str | None
    tenant: str | None
    host: str | None
    device: str | None
    pool: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    actor: str
    request_id: str | None
    cause: str | None


class EventPage(View):
    items: list[EventView]
    next_since: int = Field(description="Give it as `since` to go on from here.")
    next_cursor: str | None = Field(None, description="Always null: go on with `next_since`.")
    as_of: int


class TimelineEntryView(View):
    at: datetime
    kind: str = Field(description="event, step, frame or evidence")
    title: str
    facts: dict[str, Any]


class TimelineView(View):
    key: str
    entries: list[TimelineEntryView]
    truncated: bool = Field(description="The story is longer; this is its latest part.")
    as_of: int


class CheckView(View):
    name: str
    examined: int


class ViolationView(View):
    name: str
    objects: list[str]
    detail: str


class InvariantsView(View):
    as_of: int
    checks: list[CheckView]
    violations: list[ViolationView]


class VersionView(View):
    version: str
    api: str
    schema_revision: str


class LiveView(View):
    status: str


class ReadyCheckView(View):
    name: str
    ok: bool
    detail: str


class ReadyView(View):
    ready: bool
    checks: list[ReadyCheckView]


def picked(view: type[View], value: Any, **differing: Any) -> dict[str, Any]:
    """The view's fields: those named here, and the rest from the value's fields of the same name."""
    return {name: differing[name] if name in differing else getattr(value, name) for name in view.model_fields}


def binding_view(binding: Binding) -> dict[str, Any]:
    return picked(BindingView, binding)


def segment_view(segment: Segment) -> dict[str, Any]:
    extents = segment.extents
    return picked(
        SegmentView,
        segment,
        extents=None if extents is None else [picked(SpanView, span) for span in extents],
        binding=binding_view(segment.binding) if segment.binding else None,
    )


def allocation_view(allocation: Allocation) -> dict[str, Any]:
    a = allocation
    return picked(
        AllocationView,
        a,
        consumer=picked(ConsumerView, a.consumer) if a.consumer else None,
        segments=[segment_view(segment) for segment in a.segments],
        conditions=[picked(ConditionView, condition) for condition in a.conditions],
        failure=picked(FailureView, a.failure) if a.failure else None,
        operation=picked(OperationRefView, a.operation) if a.operation else None,
    )


def bytes_of(value: Device | Pool) -> Mapping[str, int]:
    return picked(BytesView, value.bytes)


def as_asked(shown: dict[str, Any]) -> dict[str, Any]:
    """Without what is only shown to a cluster, when none was named."""
    if shown["publishable_bytes"] is None:
        del shown["publishable_bytes"]
    return shown


def device_view(device: Device) -> dict[str, Any]:
    return as_asked(picked(DeviceView, device, **bytes_of(device)))


def pool_view(pool: Pool) -> dict[str, Any]:
    return as_asked(picked(PoolView, pool, **bytes_of(pool)))


def host_view(host: Any) -> dict[str, Any]:
    return picked(HostView, host, ports=[picked(HostPortView, port) for port in host.ports])


def event_view(event: FabricEvent) -> dict[str, Any]:
    return picked(EventView, event)


def entry_view(entry: TimelineEntry) -> dict[str, Any]:
    return picked(TimelineEntryView, entry)
