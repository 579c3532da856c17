"""Allocations as the database tells of them: one by key, and pages by filter."""

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

Document = Mapping[str, Any]


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
    "tenant": "a.tenant_id = (SELECT id FROM tenant WHERE :tenant IN (name, id::text))",
    "cluster": "a.cluster = :cluster",
    "claim_uid": "a.claim_uid = :claim_uid",
    "host": "a.host_id = (SELECT id FROM host WHERE :host IN (name, id::text))",
    "pool": "a.pool_id = (SELECT id FROM pool WHERE :pool IN (name, id::text))",
    "device": """a.id IN (SELECT s.allocation_id FROM segment s JOIN device d ON d.number = s.device_no
                          WHERE :device IN (d.name, d.id::text))""",
    "consumer_kind": "a.consumer_kind = :consumer_kind",
    "older_than_s": "a.created_at < now() - make_interval(secs => :older_than_s)",
}


# A released key is remembered as long as its tombstone stands.
REMEMBERED = """
  FROM allocation a JOIN allocation_key k ON k.key = a.key AND (k.expires_at IS NULL OR k.expires_at > now())
"""


async def get(tx: AsyncConnection, key: str, *, seen_by: Principal) -> Allocation | None:
    """The allocation of `key`, released ones too while their tombstone stands."""
    query = sa.text(f"SELECT allocation_document(a) {REMEMBERED} WHERE a.key = :key {VISIBLE}")
    doc = (await tx.execute(query, {"key": key, **bounds(seen_by)})).scalar_one_or_none()
    return from_document(doc) if doc is not None else None


async def page(
    tx: AsyncConnection, wanted: Filter, *, seen_by: Principal, before: UUID | None, limit: int
) -> list[Allocation]:
    """Up to `limit` allocations, newest first, that were made before the one called `before`."""
    facts = {name: value for name in CONDITIONS if (value := getattr(wanted, name)) is not None}
    clauses = [CONDITIONS[name] for name in facts]
    if wanted.phases:
        clauses.append("a.phase = ANY(:phases)")
        facts["phases"] = [str(phase) for phase in wanted.phases]
    if before is not None:
        clauses.append("a.id < :before")
        facts["before"] = before
    query = sa.text(
        f"SELECT allocation_document(a) {REMEMBERED} WHERE {' AND '.join(clauses) or 'true'} {VISIBLE}"
        " ORDER BY a.id DESC LIMIT :limit"
    )
    rows = await tx.execute(query, {**facts, **bounds(seen_by), "limit": limit})
    return [from_document(doc) for doc in rows.scalars()]
