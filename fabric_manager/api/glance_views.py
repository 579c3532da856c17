"""How summary, topology and alarms go out."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from fabric_manager.api.switch_views import VppbView, vppb_view
from fabric_manager.api.views import BytesView, View, picked
from fabric_manager.domain.glance import Alarm, Memory, Severity, Summary, Topology
from fabric_manager.domain.lifecycle import Goal


class MemoryView(BytesView):
    devices: int
    bytes_by_phase: dict[str, int] = Field(description="Of live segments.")


class PoolMemoryView(MemoryView):
    pool: str | None = Field(description="Null for devices that are in none.")


class OldestOperationView(View):
    id: UUID
    goal: Goal
    allocation: str | None
    reason: str
    created_at: datetime
    age_s: int


class SummaryView(View):
    total: MemoryView
    pools: list[PoolMemoryView]
    allocations: dict[str, int] = Field(description="By phase; released ones are history and not counted.")
    refusals: dict[str, int] = Field(description="By code, since the database was made.")
    fabrics: dict[str, int] = Field(description="By state.")
    hosts: dict[str, int] = Field(description="fenced, reporting (the node has told its boot id), silent.")
    devices: dict[str, int] = Field(description="By health.")
    operations: dict[str, int] = Field(description="Unfinished ones, by state.")
    oldest_operation: OldestOperationView | None = Field(description="Of the unfinished ones.")
    as_of: int


class AlarmView(View):
    kind: str
    severity: Severity
    object_kind: str
    object: str = Field(description="Its name, key or id.")
    since: datetime
    age_s: int
    detail: str
    runbook: str = Field(description="What to do: a section of the documentation.")


class AlarmsView(View):
    items: list[AlarmView]
    truncated: list[str] = Field(description="Kinds of which there are more than are shown.")
    as_of: int


class FabricNodeView(View):
    id: UUID
    name: str
    state: str
    admin_state: str


class SwitchNodeView(View):
    id: UUID
    name: str


class PortNodeView(View):
    id: UUID
    switch: str
    number: int
    role: str
    link_width: int
    link_width_max: int


class VcsNodeView(View):
    id: UUID
    switch: str
    number: int
    vppbs: list[VppbView]


class DeviceNodeView(View):
    id: UUID
    name: str
    kind: str
    pool: str | None
    health: str
    admin_state: str
    capacity_bytes: int
    free_bytes: int


class HostNodeView(View):
    id: UUID
    name: str
    cluster: str | None


class EdgeView(View):
    kind: str = Field(description="has_switch, has_port, has_vcs, upstream, plugged or attached.")
    source: UUID
    target: UUID
    attachment: UUID | None = Field(description="This and what follows: only of an attached edge.")
    vcs: UUID | None
    vppb: int | None
    ld_id: int | None
    state: str | None


class TopologyView(View):
    fabrics: list[FabricNodeView]
    switches: list[SwitchNodeView]
    ports: list[PortNodeView]
    vcs: list[VcsNodeView]
    devices: list[DeviceNodeView]
    hosts: list[HostNodeView]
    edges: list[EdgeView]
    truncated: list[str] = Field(description="Parts of which there are more than are shown.")
    as_of: int


def memory_view(memory: Memory) -> dict[str, Any]:
    return {
        **picked(BytesView, memory.bytes),
        "devices": memory.devices,
        "bytes_by_phase": dict(memory.bytes_by_phase),
    }


def summary_view(summary: Summary) -> dict[str, Any]:
    oldest = summary.oldest_operation
    return {
        "total": memory_view(summary.total),
        "pools": [{**memory_view(each.memory), "pool": each.pool} for each in summary.pools],
        "allocations": dict(summary.allocations),
        "refusals": dict(summary.refusals),
        "fabrics": dict(summary.fabrics),
        "hosts": dict(summary.hosts),
        "devices": dict(summary.devices),
        "operations": dict(summary.operations),
        "oldest_operation": None if oldest is None else picked(OldestOperationView, oldest),
    }


RUNBOOK = "docs/runbooks.md#{}"


def alarm_view(alarm: Alarm) -> dict[str, Any]:
    return picked(AlarmView, alarm, runbook=RUNBOOK.format(alarm.kind.replace("_", "-")))


def each(view: type[View], values: Iterable[Any]) -> list[dict[str, Any]]:
    return [picked(view, value) for value in values]


def topology_view(topology: Topology) -> dict[str, Any]:
    return {
        "fabrics": each(FabricNodeView, topology.fabrics),
        "switches": each(SwitchNodeView, topology.switches),
        "ports": each(PortNodeView, topology.ports),
        "vcs": [picked(VcsNodeView, vcs, vppbs=[vppb_view(vppb) for vppb in vcs.vppbs]) for vcs in topology.vcs],
        "devices": each(DeviceNodeView, topology.devices),
        "hosts": each(HostNodeView, topology.hosts),
        "edges": each(EdgeView, topology.edges),
        "truncated": list(topology.truncated),
    }
