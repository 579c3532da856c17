"""Memory devices, with their bytes by bucket."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.views import DevicePage, DeviceView, device_view
from fabric_manager.api.wire import Name, Ref
from fabric_manager.domain.errors import Code
from fabric_manager.store.inventory import DEVICE

router = APIRouter(tags=["devices"], dependencies=[AUTHENTICATED])


class DeviceQuery(PageQuery):
    fabric: Name | None = None
    pool: Name | None = None
    kind: Literal["sld", "mld", "dcd"] | None = None


@router.get(
    "/devices",
    operation_id="list_devices",
    summary="List devices",
    responses=described({200: DevicePage}),
)
async def list_devices(request: Request, query: Annotated[DeviceQuery, Query()]) -> Response:
    return await answer_page(request, DEVICE, query, device_view)


@router.get(
    "/devices/{device_id}",
    operation_id="get_device",
    summary="Get one device",
    responses=described({200: DeviceView, 304: None}, Code.NOT_FOUND),
)
async def get_device(request: Request, device_id: Ref) -> Response:
    return await answer_one(request, DEVICE, "device", device_id, device_view)
