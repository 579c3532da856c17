"""Memory devices, with their bytes by bucket."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from fabric_manager.allocator.inventory import Conditions, cordon
from fabric_manager.api.answers import described
from fabric_manager.api.auth import AUTHENTICATED, Operator, actor
from fabric_manager.api.declarations import DeviceFacts
from fabric_manager.api.declaring import (
    DELETE_CODES,
    PUT_CODES,
    WithConditions,
    WithIfMatch,
    answer_delete,
    answer_put,
    whole,
)
from fabric_manager.api.paging import PageQuery
from fabric_manager.api.publishing import Cluster, ClusterQuery, published
from fabric_manager.api.reading import answer_one, answer_page
from fabric_manager.api.services import services_of
from fabric_manager.api.views import DevicePage, DeviceView, device_view
from fabric_manager.api.wire import Name, Ref
from fabric_manager.domain.actor import Principal
from fabric_manager.domain.errors import Code
from fabric_manager.store.inventory import DEVICE, PUBLISHED_DEVICE

router = APIRouter(tags=["devices"], dependencies=[AUTHENTICATED])


class DeviceQuery(PageQuery):
    fabric: Name | None = None
    pool: Name | None = None
    kind: Literal["sld", "mld", "dcd"] | None = None
    health: Literal["ok", "degraded", "failed", "unknown"] | None = None
    admin_state: Literal["enabled", "cordoned", "draining", "maintenance"] | None = None
    name: Name | None = None
    cluster: Cluster = None
    sort: Literal["name", "-name", "number", "-number"] = "name"


@router.get(
    "/devices",
    operation_id="list_devices",
    summary="List devices",
    responses=described({200: DevicePage, 304: None}),
)
async def list_devices(request: Request, query: Annotated[DeviceQuery, Query()]) -> Response:
    return await answer_page(request, published(DEVICE, PUBLISHED_DEVICE, query.cluster), query, device_view)


@router.get(
    "/devices/{device_id}",
    operation_id="get_device",
    summary="Get one device",
    responses=described({200: DeviceView, 304: None}, Code.NOT_FOUND),
)
async def get_device(request: Request, device_id: Ref, query: Annotated[ClusterQuery, Query()]) -> Response:
    return await answer_one(
        request,
        published(DEVICE, PUBLISHED_DEVICE, query.cluster),
        "device",
        device_id,
        device_view,
        bounds=query.shown(),
    )


@router.put(
    "/devices/{device_id}",
    operation_id="put_device",
    summary="Declare what hardware does not tell of a device",
    description="Another serial replaces the device: it keeps name and facts. Refused while anything on it is live.",
    responses=described({200: DeviceView, 201: DeviceView}, *PUT_CODES, writes=True),
)
async def put_device(
    *, request: Request, device_id: Ref, body: DeviceFacts, caller: Operator, conditions: WithConditions
) -> Response:
    return await answer_put(
        request, DEVICE, "device", device_id, device_view, facts=body, caller=caller, conditions=conditions
    )


@router.delete(
    "/devices/{device_id}",
    operation_id="delete_device",
    summary="Retire a device",
    description="Refused while anything on it is live; `used_by` names it. Hardware that still shows it is not looked"
    " at until it is declared again.",
    responses=described({204: None}, *DELETE_CODES, writes=True),
)
async def delete_device(*, request: Request, device_id: Ref, caller: Operator, conditions: WithIfMatch) -> Response:
    return await answer_delete(request, "device", device_id, caller=caller, conditions=conditions)


async def answer_cordon(
    request: Request, device_id: str, *, cordoned: bool, caller: Principal, conditions: Conditions
) -> Response:
    services = services_of(request)
    await cordon(services.db, device_id, cordoned=cordoned, conditions=conditions, actor=actor(caller, request))
    services.wake()
    return await whole(services, DEVICE, "device", device_id, device_view, status=200)


@router.post(
    "/devices/{device_id}/cordon",
    operation_id="cordon_device",
    summary="Let a device get nothing new",
    description="It keeps what it has. Asked again it changes nothing.",
    responses=described({200: DeviceView}, *PUT_CODES, writes=True),
)
async def cordon_device(*, request: Request, device_id: Ref, caller: Operator, conditions: WithIfMatch) -> Response:
    return await answer_cordon(request, device_id, cordoned=True, caller=caller, conditions=conditions)


@router.post(
    "/devices/{device_id}/uncordon",
    operation_id="uncordon_device",
    summary="Let a cordoned device get something again",
    responses=described({200: DeviceView}, *PUT_CODES, writes=True),
)
async def uncordon_device(*, request: Request, device_id: Ref, caller: Operator, conditions: WithIfMatch) -> Response:
    return await answer_cordon(request, device_id, cordoned=False, caller=caller, conditions=conditions)
