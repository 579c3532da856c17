"""The binding of an allocation to its host, and what the host's node says of it."""

from uuid import UUID

from fastapi import APIRouter, Request, Response

from fabric_manager.allocator.bind import bind, unbind
from fabric_manager.allocator.node_state import NodeReport, report_node_state
from fabric_manager.api.allocations import (
    EVERYBODY,
    IfMatch,
    Prefer,
    check_visible,
    left,
    present,
    wait_until_settled,
    whole,
)
from fabric_manager.api.answers import described
from fabric_manager.api.auth import Writer, actor
from fabric_manager.api.problems import invalid
from fabric_manager.api.services import Services, WithServices
from fabric_manager.api.views import AllocationView
from fabric_manager.api.waiting import preferred_wait_s, until
from fabric_manager.api.wire import AllocationKey, BindingRequest, NodeStateRequest
from fabric_manager.domain.allocation import Allocation
from fabric_manager.domain.errors import Code, FabricError

router = APIRouter(tags=["allocations"])

COMMON = (Code.NOT_FOUND, Code.RELEASED, Code.RELEASING, Code.ILLEGAL_PHASE, Code.STALE_GENERATION)


def progress(allocation: Allocation) -> Response:
    return whole(allocation, status=200 if allocation.operation is None else 202)


@router.put(
    "/allocations/{allocation_key}/binding",
    operation_id="put_allocation_binding",
    summary="Bind a reservation to a host",
    description="Also binds anew what was lost. Bound to this host already: 200 and nothing changes.",
    responses=described(
        {200: AllocationView, 202: AllocationView},
        *COMMON,
        Code.NOT_REACHABLE_FROM_HOST,
        Code.HOST_LIMIT_REACHED,
        Code.FENCED,
        writes=True,
    ),
)
async def put_binding(
    *,
    request: Request,
    allocation_key: AllocationKey,
    body: BindingRequest,
    services: WithServices,
    caller: Writer,
    prefer: Prefer = None,
    if_match: IfMatch = None,
) -> Response:
    await check_visible(services, allocation_key, caller, if_match)
    if caller.host not in (None, body.host):
        raise FabricError(Code.FORBIDDEN, f"this token binds only to host {caller.host!r}", field="host")
    allocation = await bind(
        services.db,
        key=allocation_key,
        host=body.host,
        deadline_s=body.deadline_s,
        actor=actor(caller, request),
        identities=services.identities,
    )
    services.wake()
    return progress(await wait_until_settled(services, allocation, preferred_wait_s(prefer)))


@router.delete(
    "/allocations/{allocation_key}/binding",
    operation_id="delete_allocation_binding",
    summary="Take the memory off its host and keep the reservation",
    responses=described({200: AllocationView, 202: AllocationView}, *COMMON, writes=True),
)
async def delete_binding(
    *,
    request: Request,
    allocation_key: AllocationKey,
    services: WithServices,
    caller: Writer,
    prefer: Prefer = None,
    if_match: IfMatch = None,
) -> Response:
    await check_visible(services, allocation_key, caller, if_match)
    allocation = await unbind(
        services.db, key=allocation_key, actor=actor(caller, request), identities=services.identities
    )
    services.wake()
    if wait_s := preferred_wait_s(prefer):
        allocation = await until(
            services.feed,
            allocation_key,
            lambda: present(services, allocation_key, EVERYBODY),
            left,
            wait_s=wait_s,
            known=allocation,
            same=("present", allocation_key),
        )
    return progress(allocation)


async def segments_meant(services: Services, key: str, body: NodeStateRequest) -> list[UUID]:
    """The segment of each report: the one it names, or the only one there is. Raises FabricError validation_failed."""
    named = [said.id for said in body.segments if said.id is not None]
    if len(named) == len(body.segments):
        return named
    if len(body.segments) != 1:
        raise invalid("segments.id", "reports on several segments name each of them")
    allocation = await present(services, key, EVERYBODY)
    if len(allocation.segments) != 1:
        raise invalid("segments.id", f"say which of the {len(allocation.segments)} segments is meant")
    return [allocation.segments[0].id]


@router.post(
    "/allocations/{allocation_key}/node-state",
    operation_id="report_node_state",
    summary="What the node says of its memory",
    description="Report `online` first and bring the memory up only on 200. After 409 the node must not go on.",
    responses=described({200: AllocationView}, *COMMON, writes=True),
)
async def post_node_state(
    request: Request, allocation_key: AllocationKey, body: NodeStateRequest, services: WithServices, caller: Writer
) -> Response:
    await check_visible(services, allocation_key, caller)
    ids = await segments_meant(services, allocation_key, body)
    reports = [
        NodeReport(segment_id=segment_id, phase=said.phase, numa_node=said.numa_node, dax_device=said.dax_device)
        for segment_id, said in zip(ids, body.segments, strict=True)
    ]
    allocation = await report_node_state(
        services.db,
        key=allocation_key,
        boot_id=body.boot_id,
        epoch=body.epoch,
        reports=reports,
        actor=actor(caller, request),
    )
    services.wake()
    return whole(allocation, status=200)
