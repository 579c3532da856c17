"""Runs of dynamic-capacity devices, in the address space of the host that has them."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.views import ExtentPage, ExtentView, picked
from fabric_manager.api.wire import Key, Name
from fabric_manager.domain.errors import Code
from fabric_manager.domain.inventory import Extent
from fabric_manager.store.inventory import EXTENT

router = APIRouter(tags=["extents"], dependencies=[AUTHENTICATED])


class ExtentQuery(PageQuery):
    device: Name | None = None
    host: Name | None = None
    allocation: Key | None = None
    sort: Literal["created_at", "-created_at"] = "created_at"


def shown(value: Extent) -> dict[str, Any]:
    return picked(ExtentView, value)


@router.get(
    "/extents",
    operation_id="list_extents",
    summary="List extents",
    responses=described({200: ExtentPage, 304: None}),
)
async def list_extents(request: Request, query: Annotated[ExtentQuery, Query()]) -> Response:
    return await answer_page(request, EXTENT, query, shown)


@router.get(
    "/extents/{extent_id}",
    operation_id="get_extent",
    summary="Get one extent",
    responses=described({200: ExtentView, 304: None}, Code.NOT_FOUND),
)
async def get_extent(request: Request, extent_id: UUID) -> Response:
    return await answer_one(request, EXTENT, "extent", str(extent_id), shown)
