"""Homogeneous devices, with their bytes summed."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.views import PoolPage, PoolView, pool_view
from fabric_manager.api.wire import Ref
from fabric_manager.domain.errors import Code
from fabric_manager.store.inventory import POOL

router = APIRouter(tags=["pools"], dependencies=[AUTHENTICATED])


class PoolQuery(PageQuery):
    kind: Literal["sld", "mld", "dcd"] | None = None


@router.get(
    "/pools",
    operation_id="list_pools",
    summary="List pools",
    responses=described({200: PoolPage}),
)
async def list_pools(request: Request, query: Annotated[PoolQuery, Query()]) -> Response:
    return await answer_page(request, POOL, query, pool_view)


@router.get(
    "/pools/{pool_id}",
    operation_id="get_pool",
    summary="Get one pool",
    responses=described({200: PoolView, 304: None}, Code.NOT_FOUND),
)
async def get_pool(request: Request, pool_id: Ref) -> Response:
    return await answer_one(request, POOL, "pool", pool_id, pool_view)
