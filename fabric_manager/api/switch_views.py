"""How switches, their parts and bindings go out."""

from datetime import datetime
from typing import Any
from uuid import UUID

from fabric_manager.api.views import Page, View, picked
from fabric_manager.domain.lifecycle import Phase
from fabric_manager.domain.switches import Vcs, Vppb


class SwitchView(View):
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


class SwitchPage(Page):
    items: list[SwitchView]


class PortView(View):
    id: UUID
    switch: str
    number: int
    role: str
    device: str | None
    device_serial: str | None
    host: str | None
    link_width: int
    link_width_max: int
    link_speed_gt: int
    link_speed_gt_max: int
    generation: int
    updated_at: datetime


class PortPage(Page):
    items: list[PortView]


class VppbView(View):
    number: int
    state: str
    port: int | None
    ld_id: int | None
    attachment: UUID | None


class VcsView(View):
    id: UUID
    switch: str
    number: int
    upstream_port: int
    host: str | None
    vppbs: list[VppbView]


class VcsPage(Page):
    items: list[VcsView]


class SegmentBindingView(View):
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


class SegmentBindingPage(Page):
    items: list[SegmentBindingView]


def vppb_view(vppb: Vppb) -> dict[str, Any]:
    return picked(VppbView, vppb)


def vcs_view(vcs: Vcs) -> dict[str, Any]:
    return picked(VcsView, vcs, vppbs=[vppb_view(vppb) for vppb in vcs.vppbs])
