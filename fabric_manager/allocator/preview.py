"""What a claim would get now, and why. Writes nothing and promises nothing: the next claim may take it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fabric_manager.allocator.claim import WINDOW_MAX, no_such_tenant
from fabric_manager.allocator.outcomes import refused
from fabric_manager.domain.allocation import Order
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.policy.placement import Candidate, Place, places, rank
from fabric_manager.policy.refusal import Funnel, refuse
from fabric_manager.store import verbs
from fabric_manager.store.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A device that could hold it now."""

    device: str
    pool: str
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Either offers, best first, or the refusal that a claim would get; the funnel in both cases."""

    offers: tuple[Offer, ...]
    funnel: Funnel
    refusal: FabricError | None


async def preview(db: Database, order: Order, *, tenants_auto_create: bool) -> Preview:
    """Dry run of `claim`, over at most WINDOW_MAX devices per pool. `order.key` plays no part."""
    answer = await verbs.preview(db, order, window_max=WINDOW_MAX)
    funnel = verbs.funnel_from(answer["funnel"])
    rows = {row["number"]: row for row in answer["candidates"]}
    candidates = [Candidate(**{name: row[name] for name in Candidate.__slots__}) for row in rows.values()]
    ranked = rank(candidates)[:WINDOW_MAX]
    refusal = refusal_of(order, answer, funnel, ranked, tenants_auto_create)
    offers = tuple(
        Offer(device=rows[place.candidate.number]["device"], pool=rows[place.candidate.number]["pool"], place=place)
        for place in places(ranked)
    )
    return Preview(offers=() if refusal else offers, funnel=funnel, refusal=refusal)


def refusal_of(
    order: Order, answer: Mapping[str, Any], funnel: Funnel, ranked: list[Candidate], tenants_auto_create: bool
) -> FabricError | None:
    """In the order in which a claim meets them: the tenant, the devices, its quota, the host's fence."""
    if answer["quota"] is None and not tenants_auto_create:
        return no_such_tenant(order.tenant)
    if not ranked:
        return refuse(order.size_bytes, funnel)
    granted_bytes = ranked[0].granted_bytes  # the least that any of them grants
    if answer["quota"] and over(answer["quota"], granted_bytes):
        facts = {"tenant": order.tenant, "asked_bytes": granted_bytes, **answer["quota"]}
        return refused({"code": Code.QUOTA_EXCEEDED, **facts})
    if answer["fence"]:
        return refused({"code": Code.FENCED, **answer["fence"]})
    return None


def over(quota: Mapping[str, Any], granted_bytes: int) -> bool:
    """Whether one more allocation of so many bytes breaks the tenant's quota; a limit that is None is none."""
    wanted = (("bytes", granted_bytes), ("allocations", 1))
    return any(
        quota[f"quota_{what}"] is not None and quota[f"used_{what}"] + more > quota[f"quota_{what}"]
        for what, more in wanted
    )
