"""Allocations: ask for capacity, look at it, give it back."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from fabric_manager.allocator.claim import Claimed, claim
from fabric_manager.allocator.release import release
from fabric_manager.api import answers, paging
from fabric_manager.api.answers import described
from fabric_manager.api.auth import Caller, Writer, actor, bounded, check_may_order, sees, tombstone_scope
from fabric_manager.api.listing import answer_many
from fabric_manager.api.preconditions import check_match, etag, names
from fabric_manager.api.reading import not_found
from fabric_manager.api.services import Services, WithServices
from fabric_manager.api.views import AllocationPage, AllocationView, allocation_view
from fabric_manager.api.waiting import WAIT_S_MAX, preferred_wait_s, until
from fabric_manager.api.wire import AllocationKey, AllocationRequest, Name, Text, order_from
from fabric_manager.domain.actor import Principal, Role
from fabric_manager.domain.allocation import Allocation, Order
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.lifecycle import Goal, Phase
from fabric_manager.store import allocations, events

router = APIRouter(tags=["allocations"])

EVERYBODY = Principal(name="", role=Role.ADMIN)
AGE_S_MAX = 10 * 366 * 86_400

Prefer = Annotated[
    str | None, Header(max_length=200, description="`wait=N` (seconds, at most 30): answer when the outcome is known.")
]
IfMatch = Annotated[str | None, Header(max_length=200, description="Only if the object still has this ETag.")]
IfNoneMatch = Annotated[str | None, Header(max_length=200, description="304 while the object has this ETag.")]

REFUSALS = (
    Code.INSUFFICIENT_CAPACITY,
    Code.FRAGMENTATION,
    Code.DEVICE_FAILED,
    Code.NO_MATCHING_DEVICE,
    Code.NOT_REACHABLE_FROM_HOST,
    Code.HOST_LIMIT_REACHED,
    Code.FENCED,
    Code.QUOTA_EXCEEDED,
    Code.POLICY_DENIED,
    Code.KEY_REUSE_MISMATCH,
    Code.RELEASED,
)


class AllocationQuery(paging.PageQuery):
    """Filters. Objects go by name or id."""

    tenant: Name | None = None
    cluster: Text | None = None
    claim_uid: Text | None = None
    host: Name | None = None
    pool: Name | None = None
    device: Name | None = None
    phase: list[Phase] = Field(default=[], max_length=len(Phase), description="Repeat for several.")
    consumer_kind: Name | None = None
    older_than_s: int | None = Field(None, ge=0, le=AGE_S_MAX)
    sort: Literal["-created_at", "created_at"] = "-created_at"


class WaitQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    wait: int = Field(0, ge=0, le=WAIT_S_MAX, description="Seconds to wait for `phase`, or for a change.")
    phase: list[Phase] = Field(default=[], max_length=len(Phase), description="Repeat for several.")


def settled(allocation: Allocation) -> bool:
    """Nothing more will come of binding it: it is bound, or something else became of it."""
    operation = allocation.operation
    return operation is None or operation.goal not in (Goal.BIND, Goal.UNDO) or allocation.phase is Phase.QUARANTINED


def left(allocation: Allocation | None) -> bool:
    """Nothing more will come of giving it back by itself."""
    return allocation is None or allocation.operation is None or allocation.phase is Phase.QUARANTINED


async def look(services: Services, key: str, caller: Principal) -> tuple[Allocation | None, int]:
    """The allocation as `caller` sees it, and the number of the snapshot's last event."""
    async with services.db.snapshot() as tx:
        seq = await events.head(tx)
        return await allocations.get(tx, key, seen_by=caller), seq


async def present(services: Services, key: str, caller: Principal) -> Allocation:
    allocation, _ = await look(services, key, caller)
    if allocation is None:
        raise not_found("allocation", key)
    return allocation


async def check_visible(services: Services, key: str, caller: Principal, if_match: str | None = None) -> None:
    """What a principal does not see, it cannot change. Raises FabricError not_found or stale_generation."""
    if bounded(caller) or if_match is not None:
        allocation = await present(services, key, caller)
        check_match(if_match, allocation.generation)


async def wait_until_settled(services: Services, allocation: Allocation, wait_s: int) -> Allocation:
    if wait_s == 0 or settled(allocation):
        return allocation
    return await until(
        services.feed,
        allocation.key,
        lambda: present(services, allocation.key, EVERYBODY),
        settled,
        wait_s=wait_s,
        known=allocation,
        same=("present", allocation.key),
    )


def whole(allocation: Allocation, *, status: int) -> Response:
    return answers.json_response(
        allocation_view(allocation), status=status, headers={"ETag": etag(allocation.generation)}
    )


@router.put(
    "/allocations/{allocation_key}",
    operation_id="put_allocation",
    summary="Reserve capacity, and bind it to a host",
    description="Asking again with the same key and request answers the same allocation, whatever became of it.",
    responses=described({200: AllocationView, 201: AllocationView}, *REFUSALS, writes=True),
)
async def put_allocation(
    *,
    request: Request,
    allocation_key: AllocationKey,
    body: AllocationRequest,
    services: WithServices,
    caller: Writer,
    prefer: Prefer = None,
) -> Response:
    claimed = await claim_for(request, order_from(allocation_key, body), services, caller)
    allocation = await wait_until_settled(services, claimed.allocation, preferred_wait_s(prefer))
    return whole(allocation, status=201 if claimed.created else 200)


async def claim_for(request: Request, order: Order, services: Services, caller: Principal) -> Claimed:
    """Claim within the caller's bounds. Raises FabricError: a refusal, or forbidden."""
    check_may_order(caller, order)
    try:
        claimed = await claim(
            services.db,
            order,
            actor=actor(caller, request),
            identities=services.identities,
            tenants_auto_create=services.tenants_auto_create,
        )
    except FabricError as error:
        services.wake()  # a refusal is an event too
        raise await without_secrets(services, error, order.key, caller) from error
    services.wake()
    return claimed


async def without_secrets(services: Services, error: FabricError, key: str, caller: Principal) -> FabricError:
    """A key that belongs to somebody else tells nothing but that it is taken."""
    if error.code is not Code.KEY_REUSE_MISMATCH or not bounded(caller):
        return error
    seen, _ = await look(services, key, caller)
    return error if seen is not None else FabricError(Code.KEY_REUSE_MISMATCH, "the key is taken; use another one")


@router.get(
    "/allocations",
    operation_id="list_allocations",
    summary="List allocations, newest first",
    responses=described({200: AllocationPage, 304: None}),
)
async def list_allocations(request: Request, caller: Caller, query: Annotated[AllocationQuery, Query()]) -> Response:
    place = paging.decode(query.cursor, ["uuid"])
    wanted = allocations.Filter(
        tenant=query.tenant,
        cluster=query.cluster,
        claim_uid=query.claim_uid,
        host=query.host,
        pool=query.pool,
        device=query.device,
        phases=query.phase,
        consumer_kind=query.consumer_kind,
        older_than_s=query.older_than_s,
    )

    async def read(tx: Any) -> dict[str, Any]:
        found = await allocations.page(
            tx,
            wanted,
            seen_by=caller,
            after=UUID(place[0]) if place else None,
            limit=query.limit + 1,
            sort=query.sort,
        )
        following = paging.next_cursor(found, query.limit, lambda allocation: (str(allocation.id),))
        return {"items": [allocation_view(a) for a in found[: query.limit]], "next_cursor": following}

    return await answer_many(
        request,
        allocations.KINDS,
        read,
        seen_by=events.bounds(caller),
        expiring=True,
        timeless=query.older_than_s is None,
    )


@router.get(
    "/allocations/{allocation_key}",
    operation_id="get_allocation",
    summary="Get one allocation, or wait for it to reach a phase",
    responses=described({200: AllocationView, 304: None}, Code.NOT_FOUND),
)
async def get_allocation(
    *,
    request: Request,
    allocation_key: AllocationKey,
    services: WithServices,
    caller: Caller,
    query: Annotated[WaitQuery, Query()],
    if_none_match: IfNoneMatch = None,
) -> Response:
    def arrived(seen: tuple[Allocation | None, int]) -> bool:
        allocation = seen[0]
        if allocation is None or allocation.phase is Phase.RELEASED:
            return True
        if query.phase:
            return allocation.phase in query.phase
        if if_none_match is not None:
            return not names(if_none_match, allocation.generation)
        return allocation.operation is None

    allocation, seq = await until(
        services.feed,
        allocation_key,
        lambda: look(services, allocation_key, caller),
        arrived,
        wait_s=query.wait,
        same=("look", allocation_key, caller),
    )
    if allocation is None:
        raise not_found("allocation", allocation_key)
    return answers.single(request, allocation_view(allocation), version=allocation.generation, seq=seq)


@router.delete(
    "/allocations/{allocation_key}",
    operation_id="delete_allocation",
    summary="Give the memory back",
    description="An unknown key is remembered, so that a request which this release has overtaken gets 410.",
    responses=described({202: AllocationView, 204: None}, Code.STALE_GENERATION, writes=True),
)
async def delete_allocation(
    *,
    request: Request,
    allocation_key: AllocationKey,
    services: WithServices,
    caller: Writer,
    prefer: Prefer = None,
    if_match: IfMatch = None,
) -> Response:
    if if_match is not None or bounded(caller):
        seen, _ = await look(services, allocation_key, EVERYBODY)
        mine = seen if seen is not None and sees(caller, seen) else None
        check_match(if_match, mine.generation if mine else None)
        if seen is not None and mine is None:
            return Response(status_code=204)  # somebody else's: as if there were none
    allocation = await release(
        services.db,
        key=allocation_key,
        tombstone_scope=tombstone_scope(caller),
        actor=actor(caller, request),
        identities=services.identities,
    )
    services.wake()
    wait_s = preferred_wait_s(prefer)
    if allocation is not None and wait_s and not left(allocation):
        known: tuple[Allocation | None, int] = (allocation, 0)
        allocation, _ = await until(
            services.feed,
            allocation_key,
            lambda: look(services, allocation_key, EVERYBODY),
            lambda seen: left(seen[0]),
            wait_s=wait_s,
            known=known,
            same=("look", allocation_key, EVERYBODY),
        )
    if allocation is None or allocation.phase in (Phase.RELEASED, Phase.FAILED):
        return Response(status_code=204)
    return whole(allocation, status=202)
