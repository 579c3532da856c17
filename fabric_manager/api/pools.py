"""Homogeneous devices, with their bytes summed."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED, Operator
from fabric_manager.api.declarations import PoolFacts
from fabric_manager.api.declaring import (
    DELETE_CODES,
    PUT_CODES,
    WithConditions,
    WithIfMatch,
    answer_delete,
    answer_put,
)
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.publishing import Cluster, ClusterQuery, published
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.views import PoolPage, PoolView, pool_view
from fabric_manager.api.wire import Ref
from fabric_manager.domain.errors import Code
from fabric_manager.store.inventory import POOL, PUBLISHED_POOL

router = APIRouter(tags=["pools"], dependencies=[AUTHENTICATED])


class PoolQuery(PageQuery):
    kind: Literal["sld", "mld", "dcd"] | None = None
    cluster: Cluster = None
    sort: Literal["name", "-name"] = "name"


@router.get(
    "/pools",
    operation_id="list_pools",
    summary="List pools",
    responses=described({200: PoolPage, 304: None}),
)
async def list_pools(request: Request, query: Annotated[PoolQuery, Query()]) -> Response:
    return await answer_page(request, published(POOL, PUBLISHED_POOL, query.cluster), query, pool_view)


@router.get(
    "/pools/{pool_id}",
    operation_id="get_pool",
    summary="Get one pool",
    responses=described({200: PoolView, 304: None}, Code.NOT_FOUND),
)
async def get_pool(request: Request, pool_id: Ref, query: Annotated[ClusterQuery, Query()]) -> Response:
    return await answer_one(
        request, published(POOL, PUBLISHED_POOL, query.cluster), "pool", pool_id, pool_view, bounds=query.shown()
    )


@router.put(
    "/pools/{pool_id}",
    operation_id="put_pool",
    summary="Declare a pool, or change it",
    description="The kind stays while the pool has devices.",
    responses=described({200: PoolView, 201: PoolView}, *PUT_CODES, writes=True),
)
async def put_pool(
    *, request: Request, pool_id: Ref, body: PoolFacts, caller: Operator, conditions: WithConditions
) -> Response:
    return await answer_put(request, POOL, "pool", pool_id, pool_view, facts=body, caller=caller, conditions=conditions)


@router.delete(
    "/pools/{pool_id}",
    operation_id="delete_pool",
    summary="Delete a pool",
    description="Refused while it has devices or live allocations; `used_by` names them.",
    responses=described({204: None}, *DELETE_CODES, writes=True),
)
async def delete_pool(*, request: Request, pool_id: Ref, caller: Operator, conditions: WithIfMatch) -> Response:
    return await answer_delete(request, "pool", pool_id, caller=caller, conditions=conditions)
