"""Switches, their ports, and the virtual switches of the hosts."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.switch_views import PortPage, PortView, SwitchPage, SwitchView, VcsPage, VcsView, vcs_view
from fabric_manager.api.views import picked
from fabric_manager.api.wire import Name, Ref
from fabric_manager.domain.errors import Code
from fabric_manager.domain.switches import Port, Switch
from fabric_manager.store.switches import PORT, SWITCH, VCS

router = APIRouter(dependencies=[AUTHENTICATED])


class SwitchQuery(PageQuery):
    fabric: Name | None = None
    sort: Literal["name", "-name"] = "name"


class PortQuery(PageQuery):
    switch: Name | None = None
    role: Literal["upstream", "downstream", "fabric", "disabled"] | None = None
    sort: Literal["switch", "-switch"] = "switch"


class VcsQuery(PageQuery):
    switch: Name | None = None
    host: Name | None = None
    sort: Literal["switch", "-switch"] = "switch"


def switch_view(switch: Switch) -> dict[str, Any]:
    return picked(SwitchView, switch)


def port_view(port: Port) -> dict[str, Any]:
    return picked(PortView, port)


@router.get(
    "/switches",
    operation_id="list_switches",
    summary="List switches",
    responses=described({200: SwitchPage, 304: None}),
    tags=["switches"],
)
async def list_switches(request: Request, query: Annotated[SwitchQuery, Query()]) -> Response:
    return await answer_page(request, SWITCH, query, switch_view)


@router.get(
    "/switches/{switch_id}",
    operation_id="get_switch",
    summary="Get one switch",
    responses=described({200: SwitchView, 304: None}, Code.NOT_FOUND),
    tags=["switches"],
)
async def get_switch(request: Request, switch_id: Ref) -> Response:
    return await answer_one(request, SWITCH, "switch", switch_id, switch_view)


@router.get(
    "/ports",
    operation_id="list_ports",
    summary="List ports, with who hangs on them",
    responses=described({200: PortPage, 304: None}),
    tags=["ports"],
)
async def list_ports(request: Request, query: Annotated[PortQuery, Query()]) -> Response:
    return await answer_page(request, PORT, query, port_view)


@router.get(
    "/ports/{port_id}",
    operation_id="get_port",
    summary="Get one port, by id or as switch:number",
    responses=described({200: PortView, 304: None}, Code.NOT_FOUND),
    tags=["ports"],
)
async def get_port(request: Request, port_id: Ref) -> Response:
    return await answer_one(request, PORT, "port", port_id, port_view)


@router.get(
    "/vcs",
    operation_id="list_vcs",
    summary="List virtual switches, with their vPPBs",
    responses=described({200: VcsPage, 304: None}),
    tags=["vcs"],
)
async def list_vcs(request: Request, query: Annotated[VcsQuery, Query()]) -> Response:
    return await answer_page(request, VCS, query, vcs_view)


@router.get(
    "/vcs/{vcs_id}",
    operation_id="get_vcs",
    summary="Get one virtual switch, by id or as switch:number",
    responses=described({200: VcsView, 304: None}, Code.NOT_FOUND),
    tags=["vcs"],
)
async def get_vcs(request: Request, vcs_id: Ref) -> Response:
    return await answer_one(request, VCS, "virtual switch", vcs_id, vcs_view)
