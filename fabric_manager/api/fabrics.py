"""What each driver endpoint manages."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED, Operator
from fabric_manager.api.declarations import FabricFacts
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
from fabric_manager.api.views import FabricPage, FabricView, picked
from fabric_manager.api.wire import Ref
from fabric_manager.domain.errors import Code
from fabric_manager.domain.inventory import Fabric
from fabric_manager.store.inventory import FABRIC

router = APIRouter(tags=["fabrics"], dependencies=[AUTHENTICATED])


class FabricQuery(PageQuery):
    state: Literal["up", "degraded", "unreachable"] | None = None
    admin_state: Literal["active", "paused", "maintenance"] | None = None
    sort: Literal["name", "-name"] = "name"


def shown(value: Fabric) -> dict[str, Any]:
    return picked(FabricView, value)


@router.get(
    "/fabrics",
    operation_id="list_fabrics",
    summary="List fabrics",
    responses=described({200: FabricPage, 304: None}),
)
async def list_fabrics(request: Request, query: Annotated[FabricQuery, Query()]) -> Response:
    return await answer_page(request, FABRIC, query, shown)


@router.get(
    "/fabrics/{fabric_id}",
    operation_id="get_fabric",
    summary="Get one fabric",
    responses=described({200: FabricView, 304: None}, Code.NOT_FOUND),
)
async def get_fabric(request: Request, fabric_id: Ref) -> Response:
    return await answer_one(request, FABRIC, "fabric", fabric_id, shown)


@router.put(
    "/fabrics/{fabric_id}",
    operation_id="put_fabric",
    summary="Declare a fabric, or change it",
    description="Paused, and in maintenance, nothing that changes hardware is sent; what is asked for meanwhile waits.",
    responses=described({200: FabricView, 201: FabricView}, *PUT_CODES, writes=True),
)
async def put_fabric(
    *, request: Request, fabric_id: Ref, body: FabricFacts, caller: Operator, conditions: WithConditions
) -> Response:
    return await answer_put(
        request, FABRIC, "fabric", fabric_id, shown, facts=body, caller=caller, conditions=conditions
    )


@router.delete(
    "/fabrics/{fabric_id}",
    operation_id="delete_fabric",
    summary="Delete a fabric",
    description="Refused while it has declared devices, live allocations or unfinished work; `used_by` names them.",
    responses=described({204: None}, *DELETE_CODES, writes=True),
)
async def delete_fabric(*, request: Request, fabric_id: Ref, caller: Operator, conditions: WithIfMatch) -> Response:
    return await answer_delete(request, "fabric", fabric_id, caller=caller, conditions=conditions)
