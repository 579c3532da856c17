"""Slices of multi-logical devices; each goes whole to one host."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.views import LogicalDevicePage, LogicalDeviceView, picked
from fabric_manager.api.wire import Key, Name
from fabric_manager.domain.errors import Code
from fabric_manager.domain.inventory import LogicalDevice
from fabric_manager.store.inventory import LOGICAL_DEVICE

router = APIRouter(tags=["logical-devices"], dependencies=[AUTHENTICATED])


class LogicalDeviceQuery(PageQuery):
    device: Name | None = None
    allocation: Key | None = None
    sort: Literal["device", "-device"] = "device"


def shown(value: LogicalDevice) -> dict[str, Any]:
    return picked(LogicalDeviceView, value)


@router.get(
    "/logical-devices",
    operation_id="list_logical_devices",
    summary="List logical devices",
    responses=described({200: LogicalDevicePage, 304: None}),
)
async def list_logical_devices(request: Request, query: Annotated[LogicalDeviceQuery, Query()]) -> Response:
    return await answer_page(request, LOGICAL_DEVICE, query, shown)


@router.get(
    "/logical-devices/{logical_device_id}",
    operation_id="get_logical_device",
    summary="Get one logical device",
    responses=described({200: LogicalDeviceView, 304: None}, Code.NOT_FOUND),
)
async def get_logical_device(request: Request, logical_device_id: UUID) -> Response:
    return await answer_one(request, LOGICAL_DEVICE, "logical device", str(logical_device_id), shown)
