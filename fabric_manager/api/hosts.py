"""Machines on upstream ports."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.views import HostPage, HostView, host_view
from fabric_manager.api.wire import Ref, Text
from fabric_manager.domain.errors import Code
from fabric_manager.store.inventory import HOST

router = APIRouter(tags=["hosts"], dependencies=[AUTHENTICATED])


class HostQuery(PageQuery):
    cluster: Text | None = None


@router.get(
    "/hosts",
    operation_id="list_hosts",
    summary="List hosts",
    responses=described({200: HostPage}),
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
