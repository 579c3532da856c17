"""The database functions that change intent, by name. Each is one round trip and one commit."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from fabric_manager.domain.actor import Actor
from fabric_manager.domain.allocation import Order
from fabric_manager.domain.errors import FabricError
from fabric_manager.policy.placement import Candidate
from fabric_manager.policy.refusal import Funnel, Step
from fabric_manager.store.database import Database
from fabric_manager.telemetry import metrics

Answer = Mapping[str, Any]


def context(actor: Actor) -> dict[str, str | None]:
    return {"actor": actor.name, "request_id": actor.request_id, "cause": actor.cause}


def request_of(order: Order) -> dict[str, Any]:
    """The request as it is stored and compared on replay, defaults filled in."""
    consumer = order.consumer
    return {
        "tenant": order.tenant,
        "size_bytes": order.size_bytes,
        "host": order.host,
        "bind": order.bind,
        "pool": order.pool,
        "device": order.device,
        "attachment": order.attachment,
        "consumer": consumer
        and {
            "kind": consumer.kind,
            "cluster": consumer.cluster,
            "namespace": consumer.namespace,
            "name": consumer.name,
            "uid": consumer.uid,
        },
        "deadline_s": order.deadline_s,
        "reservation_ttl_s": order.reservation_ttl_s,
        "labels": dict(order.labels),
    }


async def candidates(
    db: Database, order: Order, *, tried: Sequence[int], window_max: int
) -> tuple[UUID | None, list[Candidate]]:
    """The tenant's id, if there is one, and up to `window_max` devices per pool that have room, without `tried`."""
    answer = await db.call(
        "claim_candidates", {"request": request_of(order), "tried": list(tried), "window_max": window_max}
    )
    tenant_id = answer["tenant_id"]
    return tenant_id and UUID(tenant_id), [Candidate(**row) for row in answer["candidates"]]


async def preview(db: Database, order: Order, *, window_max: int) -> Answer:
    """What a claim would meet now: see sql/candidates.sql. Writes nothing; linear in the number of devices."""
    answer: Answer = await db.call("claim_preview", {"request": request_of(order), "window_max": window_max})
    return answer


async def funnel(db: Database, order: Order) -> Funnel:
    """What each filter leaves of all devices. Linear in their number: for refusals only."""
    return funnel_from(await db.call("claim_funnel", {"request": request_of(order)}))


def funnel_from(answer: Answer) -> Funnel:
    return Funnel(
        steps=tuple(Step(**step) for step in answer["steps"]),
        undiscovered=answer["undiscovered"],
        free_bytes=answer["free_bytes"],
        largest_fit_bytes=answer["largest_fit_bytes"],
        largest_fit_soon_bytes=answer["largest_fit_soon_bytes"],
    )


async def record_refusal(
    db: Database, *, key: str, request: Mapping[str, Any], error: FabricError, actor: Actor
) -> None:
    """Keep a refusal as an event; `request` says whom and what it was about."""
    metrics.REFUSALS.labels(code=error.code).inc()
    refusal = {"code": error.code, "detail": str(error), **error.facts}
    await db.call("record_refusal", {"key": key, "request": request, "refusal": refusal, "ctx": context(actor)})


async def ensure_tenant(db: Database, name: str, *, new_id: UUID, actor: Actor) -> None:
    await db.call("ensure_tenant", {"name": name, "id": new_id, "ctx": context(actor)})


async def claim(
    db: Database, order: Order, *, tenant_id: UUID | None, devices: Sequence[int], ids: Mapping[str, UUID], actor: Actor
) -> Answer:
    """See sql/claim.sql. `ids` are allocation_id, segment_id, attachment_id and operation_id."""
    answer: Answer = await db.call(
        "claim",
        {
            "key": order.key,
            "tenant_id": tenant_id,
            "request": request_of(order),
            "candidates": list(devices),
            "ctx": context(actor),
            **ids,
        },
    )
    return answer


async def bind(db: Database, *, key: str, host: str, deadline_s: int, ids: Mapping[str, UUID], actor: Actor) -> Answer:
    """See sql/bind.sql. `ids` are attachment_id and operation_id."""
    arg = {"key": key, "host": host, "request": {"deadline_s": deadline_s}, "ctx": context(actor), **ids}
    answer: Answer = await db.call("bind", arg)
    return answer


async def unbind(db: Database, *, key: str, operation_id: UUID, actor: Actor) -> Answer:
    """See sql/release.sql."""
    answer: Answer = await db.call("unbind", {"key": key, "operation_id": operation_id, "ctx": context(actor)})
    return answer


async def release(db: Database, *, key: str, tombstone_scope: str, operation_id: UUID, actor: Actor) -> Answer:
    """See sql/release.sql."""
    arg = {"key": key, "tombstone_scope": tombstone_scope, "operation_id": operation_id, "ctx": context(actor)}
    answer: Answer = await db.call("release", arg)
    return answer


async def register_boot(db: Database, *, host: str, boot_id: str, actor: Actor) -> int:
    """The host's epoch after it was seen with `boot_id`; a new one takes everything it had online back to bound."""
    return int(await db.call("register_boot", {"host": host, "boot_id": boot_id, "ctx": context(actor)}))


async def report_node_state(
    db: Database, *, key: str, boot_id: str, epoch: int | None, reports: Sequence[Mapping[str, Any]], actor: Actor
) -> Answer:
    """See sql/node_state.sql."""
    arg = {"key": key, "boot_id": boot_id, "epoch": epoch, "reports": list(reports), "ctx": context(actor)}
    answer: Answer = await db.call("report_node_state", arg)
    return answer


async def expire_one(db: Database, *, actor: Actor) -> bool:
    """Release one reservation or failed allocation whose time is over; False when there is none."""
    return bool(await db.call("expire_allocations", {"batch_max": 1, "ctx": context(actor)}))


async def forget(db: Database, *, batch_max: int) -> int:
    """Take released allocations whose tombstones are over out of the lists; answers how many."""
    return int(await db.call("forget_allocations", {"batch_max": batch_max}))
