"""Allocations as the database tells of them: one by key, and pages by filter."""

# ruff: noqa: S608 (conditions are put together from constants of ours; values are parameters)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.actor import Principal
from fabric_manager.domain.allocation import (
    Allocation,
    Binding,
    Condition,
    Consumer,
    Failure,
    OperationRef,
    Segment,
    Span,
)
from fabric_manager.domain.lifecycle import Goal, Phase
from fabric_manager.store.events import bounds
from fabric_manager.store.nouns import called, with_ids
from fabric_manager.store.tables import quoted

Document = Mapping[str, Any]
# What an allocation shows changes with these.
KINDS = frozenset({"allocation", "operation", "host", "pool", "device", "switch"})


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def binding_from(doc: Document) -> Binding:
    return Binding(switch=doc["switch"], vcs=doc["vcs"], vppb=doc["vppb"], phase=Phase(doc["phase"]))


def segment_from(doc: Document) -> Segment:
    extents = doc["extents"]
    return Segment(
        id=UUID(doc["id"]),
        device=doc["device"],
        logical_device=doc["logical_device"],
        extents=None if extents is None else tuple(Span(**span) for span in extents),
        size_bytes=doc["size_bytes"],
        min_bandwidth=doc["min_bandwidth"],
        phase=Phase(doc["phase"]),
        goal=Goal(doc["goal"]),
        binding=binding_from(doc["binding"]) if doc["binding"] else None,
        node_state=doc["node_state"],
        numa_node=doc["numa_node"],
        dax_device=doc["dax_device"],
    )


def condition_from(doc: Document) -> Condition:
    return Condition(
        type=doc["type"],
        status=doc["status"],
        reason=doc["reason"],
        message=doc["message"],
        last_transition_at=instant(doc["last_transition_at"]),
    )


def failure_from(doc: Document) -> Failure:
    return Failure(
        code=doc["code"],
        retryable=bool(doc.get("retryable", False)),
        terminal_for=doc.get("terminal_for"),
        detail=doc.get("detail", ""),
    )


def from_document(doc: Document) -> Allocation:
    """Read what the database function allocation_document writes."""
    operation, expires_at = doc["operation"], doc["reservation_expires_at"]
    return Allocation(
        key=doc["key"],
        id=UUID(doc["id"]),
        tenant=doc["tenant"],
        phase=Phase(doc["phase"]),
        goal=Goal(doc["goal"]),
        generation=doc["generation"],
        request=doc["request"],
        size_bytes=doc["size_bytes"],
        granted_bytes=doc["granted_bytes"],
        pool=doc["pool"],
        host=doc["host"],
        qos_class=doc["qos_class"],
        isolation=doc["isolation"],
        consumer=Consumer(**doc["consumer"]) if doc["consumer"] else None,
        labels=doc["labels"],
        segments=tuple(segment_from(segment) for segment in doc["segments"]),
        conditions=tuple(condition_from(condition) for condition in doc["conditions"]),
        failure=failure_from(doc["failure"]) if doc["failure"] else None,
        operation=OperationRef(id=UUID(operation["id"]), goal=Goal(operation["goal"])) if operation else None,
        reservation_expires_at=instant(expires_at) if expires_at else None,
        created_at=instant(doc["created_at"]),
        updated_at=instant(doc["updated_at"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What a page is restricted to; None does not restrict. Objects go by name or id."""

    tenant: str | None = None
    cluster: str | None = None
    claim_uid: str | None = None
    host: str | None = None
    pool: str | None = None
    device: str | None = None
    phases: Sequence[Phase] = ()
    consumer_kind: str | None = None
    older_than_s: int | None = None


# A principal sees what lies within every bound it has; the rest does not exist for it.
VISIBLE = """
  AND (cast(:sees_tenant AS text) IS NULL OR a.tenant_id = (SELECT id FROM tenant WHERE name = :sees_tenant))
  AND (cast(:sees_cluster AS text) IS NULL OR a.cluster = :sees_cluster)
  AND (cast(:sees_host AS text) IS NULL OR a.host_id = (SELECT id FROM host WHERE name = :sees_host))
"""

CONDITIONS: Mapping[str, str] = {
    "tenant": "a.tenant_id = " + called("tenant", "tenant"),
    "cluster": "a.cluster = :cluster",
    "claim_uid": "a.claim_uid = :claim_uid",
    "host": "a.host_id = " + called("host", "host"),
    "pool": "a.pool_id = " + called("pool", "pool"),
    "consumer_kind": "a.consumer_kind = :consumer_kind",
    # An id begins with the time it was made: the first condition bounds the walk, up to a minute by clocks that differ.
    "older_than_s": """a.id < CAST(lpad(to_hex(floor(1000 * extract(epoch FROM
                         now() + interval '1 minute' - make_interval(secs => :older_than_s)))::bigint), 12, '0')
                         || repeat('f', 20) AS uuid)
                       AND a.created_at < now() - make_interval(secs => :older_than_s)""",
}
SORTS = ("-created_at", "created_at")

# A released key is remembered as long as its tombstone stands; housekeeping marks what is over as forgotten.
REMEMBERED = """
  JOIN allocation_key k ON k.key = a.key AND NOT a.forgotten AND (k.expires_at IS NULL OR k.expires_at > now())
"""
# Each once, in the order of the page; without the DISTINCT the device's whole history would be sorted first.
ON_DEVICE = """(SELECT DISTINCT s.allocation_id FROM segment s
                WHERE s.device_no = (SELECT number FROM device WHERE name = :device OR id = CAST(:device_id AS uuid))
                  AND NOT s.forgotten {behind} ORDER BY s.allocation_id {direction}) x JOIN"""


async def get(tx: AsyncConnection, key: str, *, seen_by: Principal) -> Allocation | None:
    """The allocation of `key`, released ones too while their tombstone stands."""
    query = sa.text(f"SELECT allocation_document(a) FROM allocation a {REMEMBERED} WHERE a.key = :key {VISIBLE}")
    doc = (await tx.execute(query, {"key": key, **bounds(seen_by)})).scalar_one_or_none()
    return from_document(doc) if doc is not None else None


async def page(
    tx: AsyncConnection,
    wanted: Filter,
    *,
    seen_by: Principal,
    after: UUID | None,
    limit: int,
    sort: str | None = None,
) -> list[Allocation]:
    """Up to `limit` allocations behind the one whose id is `after`; the newest first unless `sort` says otherwise."""
    backwards = (sort or SORTS[0]).startswith("-")
    direction, compares = ("DESC", "<") if backwards else ("ASC", ">")
    facts: dict[str, Any] = {name: value for name in CONDITIONS if (value := getattr(wanted, name)) is not None}
    clauses = [CONDITIONS[name] for name in facts]
    source = "allocation a"
    if wanted.device is not None:
        facts["device"] = wanted.device
        behind = f"AND s.allocation_id {compares} :after" if after is not None else ""
        source = f"{ON_DEVICE.format(behind=behind, direction=direction)} allocation a ON a.id = x.allocation_id"
    if wanted.phases:
        clauses.append(f"a.phase IN ({quoted(wanted.phases)})")
    if after is not None:
        clauses.append(f"a.id {compares} :after")
    query = (
        f"SELECT allocation_document(a) FROM {source} {REMEMBERED} WHERE {' AND '.join(clauses) or 'true'} {VISIBLE}"
        f" ORDER BY a.id {direction} LIMIT :limit"
    )
    places = {"after": after} if after is not None else {}
    rows = await tx.execute(sa.text(query), {**with_ids(query, facts), **places, **bounds(seen_by), "limit": limit})
    return [from_document(doc) for doc in rows.scalars()]
