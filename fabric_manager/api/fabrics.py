"""What each driver endpoint manages."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.views import FabricPage, FabricView, picked
from fabric_manager.api.wire import Ref
from fabric_manager.domain.errors import Code
from fabric_manager.domain.inventory import Fabric
from fabric_manager.store.inventory import FABRIC

router = APIRouter(tags=["fabrics"], dependencies=[AUTHENTICATED])


def shown(value: Fabric) -> dict[str, Any]:
    return picked(FabricView, value)


@router.get(
    "/fabrics",
    operation_id="list_fabrics",
    summary="List fabrics",
    responses=described({200: FabricPage}),
)
async def list_fabrics(request: Request, query: Annotated[PageQuery, Query()]) -> Response:
    return await answer_page(request, FABRIC, query, shown)


@router.get(
    "/fabrics/{fabric_id}",
    operation_id="get_fabric",
    summary="Get one fabric",
    responses=described({200: FabricView, 304: None}, Code.NOT_FOUND),
)
async def get_fabric(request: Request, fabric_id: Ref) -> Response:
    return await answer_one(request, FABRIC, "fabric", fabric_id, shown)
