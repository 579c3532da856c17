"""Machines on upstream ports."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED, Operator
from fabric_manager.api.declarations import HostFacts
from fabric_manager.api.declaring import (
    DELETE_CODES,
    PUT_CODES,
    WithConditions,
    WithIfMatch,
    answer_delete,
    answer_put,
)
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.views import HostPage, HostView, host_view
from fabric_manager.api.wire import Ref, Text
from fabric_manager.domain.errors import Code
from fabric_manager.store.inventory import HOST

router = APIRouter(tags=["hosts"], dependencies=[AUTHENTICATED])


class HostQuery(PageQuery):
    cluster: Text | None = None
    sort: Literal["name", "-name"] = "name"


@router.get(
    "/hosts",
    operation_id="list_hosts",
    summary="List hosts",
    responses=described({200: HostPage, 304: None}),
)
async def list_hosts(request: Request, query: Annotated[HostQuery, Query()]) -> Response:
    return await answer_page(request, HOST, query, host_view)


@router.get(
    "/hosts/{host_id}",
    operation_id="get_host",
    summary="Get one host",
    responses=described({200: HostView, 304: None}, Code.NOT_FOUND),
)
async def get_host(request: Request, host_id: Ref) -> Response:
    return await answer_one(request, HOST, "host", host_id, host_view)


@router.put(
    "/hosts/{host_id}",
    operation_id="put_host",
    summary="Declare a host, or change it",
    description="A port that memory hangs on stays.",
    responses=described({200: HostView, 201: HostView}, *PUT_CODES, writes=True),
)
async def put_host(
    *, request: Request, host_id: Ref, body: HostFacts, caller: Operator, conditions: WithConditions
) -> Response:
    return await answer_put(request, HOST, "host", host_id, host_view, facts=body, caller=caller, conditions=conditions)


@router.delete(
    "/hosts/{host_id}",
    operation_id="delete_host",
    summary="Delete a host",
    description="Refused while it holds memory; `used_by` names the allocations.",
    responses=described({204: None}, *DELETE_CODES, writes=True),
)
async def delete_host(*, request: Request, host_id: Ref, caller: Operator, conditions: WithIfMatch) -> Response:
    return await answer_delete(request, "host", host_id, caller=caller, conditions=conditions)
