"""Reserve capacity for a key, and set its binding under way where a host is named."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fabric_manager.allocator.outcomes import infrastructural, refused, released
from fabric_manager.domain.actor import Actor
from fabric_manager.domain.allocation import Allocation, Order
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.policy.placement import rank
from fabric_manager.policy.refusal import refuse
from fabric_manager.store import verbs
from fabric_manager.store.allocations import from_document
from fabric_manager.store.database import Database
from fabric_manager.telemetry.logs import note

Identities = Callable[[], UUID]

WINDOW_MAX = 64  # candidates looked at together
WINDOWS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    allocation: Allocation
    created: bool  # False: the key was known and this is what it stands for


async def claim(
    db: Database, order: Order, *, actor: Actor, identities: Identities, tenants_auto_create: bool
) -> Claimed:
    """Reserve `order.size_bytes` and plan the binding; hardware is untouched until the reconciler runs.

    The same key and request any number of times is one allocation. Raises FabricError: a placement, host or quota
    refusal, policy_denied, key_reuse_mismatch, released. Each is kept as event `allocation.refused`; a crash right
    before that loses the event only.
    """
    note(key=order.key)
    try:
        return await place(db, order, actor=actor, identities=identities, tenants_auto_create=tenants_auto_create)
    except FabricError as error:
        if not infrastructural(error):
            await verbs.record_refusal(db, key=order.key, request=verbs.request_of(order), error=error, actor=actor)
        raise


async def place(
    db: Database, order: Order, *, actor: Actor, identities: Identities, tenants_auto_create: bool
) -> Claimed:
    """Offer the database one window of ranked devices after the other, until it grants or none is left."""
    tried: list[int] = []
    refusal: Mapping[str, Any] | None = None
    for _ in range(WINDOWS_MAX):
        tenant_id, candidates = await verbs.candidates(db, order, tried=tried, window_max=WINDOW_MAX)
        numbers = [candidate.number for candidate in rank(candidates)][:WINDOW_MAX]
        answer = await verbs.claim(
            db, order, tenant_id=tenant_id, devices=numbers, ids=new_identities(identities), actor=actor
        )
        match answer["outcome"]:
            case "granted" | "replayed":
                return Claimed(allocation=from_document(answer["allocation"]), created=answer["outcome"] == "granted")
            case "mismatch":
                raise FabricError(
                    Code.KEY_REUSE_MISMATCH,
                    f"key {order.key!r} stands for another request; use a new key for a new request",
                    differs=answer["differs"],
                )
            case "released":
                raise released(order.key)
            case "no_tenant":  # known only after the key was looked at, so that a replay makes no tenant
                await new_tenant(db, order.tenant, actor, identities, tenants_auto_create)
                continue
        refusal = answer.get("refusal") or refusal
        tried += numbers
        if not numbers or (refusal and refusal["code"] == Code.QUOTA_EXCEEDED):
            break
    raise await explained(db, order, refusal)


def new_identities(identities: Identities) -> dict[str, UUID]:
    return {name: identities() for name in ("allocation_id", "segment_id", "attachment_id", "operation_id")}


async def new_tenant(db: Database, name: str, actor: Actor, identities: Identities, tenants_auto_create: bool) -> None:
    if not tenants_auto_create:
        raise no_such_tenant(name)
    await verbs.ensure_tenant(db, name, new_id=identities(), actor=actor)


def no_such_tenant(name: str) -> FabricError:
    return FabricError(Code.POLICY_DENIED, f"there is no tenant {name!r}, and tenants are not created by use")


async def explained(db: Database, order: Order, refusal: Mapping[str, Any] | None) -> FabricError:
    """Why it was refused, with what each filter left of all devices."""
    funnel = await verbs.funnel(db, order)
    if refusal is None:
        return refuse(order.size_bytes, funnel)
    error = refused(refusal)
    error.facts["funnel"] = [{"filter": step.filter, "left": step.left} for step in funnel.steps]
    return error
