"""Events, in the order of their numbers."""

from dataclasses import dataclass
from typing import Any

import asyncpg
import orjson
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.actor import Principal
from fabric_manager.domain.operation import FabricEvent
from fabric_manager.domain.selection import Selection
from fabric_manager.store.inventory import filled


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What can be read: `head` is the last number given out, `oldest` the first that is still kept."""

    head: int
    oldest: int


async def kept(tx: AsyncConnection) -> Range:
    row = (await tx.execute(sa.text("SELECT seq, oldest_seq FROM event_head"))).one()
    return Range(head=row.seq, oldest=row.oldest_seq)


async def head(tx: AsyncConnection) -> int:
    """The number of the last event in this snapshot: what has happened up to it is in every row read here."""
    return (await kept(tx)).head


VISIBLE = """
  AND (cast(:sees_tenant AS text) IS NULL OR e.tenant = :sees_tenant)
  AND (cast(:sees_cluster AS text) IS NULL OR e.cluster = :sees_cluster)
  AND (cast(:sees_host AS text) IS NULL OR e.host = :sees_host)
"""


def bounds(principal: Principal) -> dict[str, Any]:
    return {
        "sees_tenant": principal.tenant,
        "sees_cluster": principal.cluster,
        "sees_host": principal.host,
    }


# A page looks at so many numbers at most: where no index leads to the rows, it bounds what is read for nothing.
SCAN_MAX = 20_000
SCAN_INDEXED_MAX = 1_000_000
INDEXED = frozenset({"key", "claim_uid", "host", "device"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`reached` is the number up to which nothing else was selected: the next page begins there."""

    items: tuple[FabricEvent, ...]
    reached: int


async def page(tx: AsyncConnection, selection: Selection, *, since: int, head: int, limit: int) -> Page:
    """Up to `limit` events numbered above `since` and up to `head`. It may be empty and not at the head yet."""
    indexed = not INDEXED.isdisjoint(selection.wishes)
    end = min(head, since + (SCAN_INDEXED_MAX if indexed else SCAN_MAX))
    query, facts = page_query(selection, since=since, end=end, limit=limit)
    rows = await tx.execute(query, facts)
    items = tuple(filled(FabricEvent, row) for row in rows.mappings())
    return Page(items=items, reached=items[-1].seq if len(items) == limit else end)


def page_query(selection: Selection, *, since: int, end: int, limit: int) -> tuple[sa.TextClause, dict[str, Any]]:
    facts: dict[str, Any] = {"since": since, "end": end, "limit": limit, **selection.wishes}
    wanted = "".join(f" AND e.{name} = :{name}" for name in selection.wishes)
    if selection.kinds:
        wanted += " AND e.object_kind = ANY(:kinds)"
        facts["kinds"] = list(selection.kinds)
    query = sa.text(
        f"SELECT e.* FROM event e WHERE e.seq > :since AND e.seq <= :end {wanted} {VISIBLE}"  # noqa: S608
        " ORDER BY e.seq LIMIT :limit"
    )
    return query, {**facts, **bounds(selection.seen_by)}


async def newest(
    connection: "asyncpg.Connection[Any]", *, since: int | None, limit: int
) -> tuple[Range, list[FabricEvent]]:
    """The first `limit` events above `since`, of all kinds; without `since` the last `limit`.

    For the one that follows the events for all others: on its listening connection, so no storm of reads delays it.
    """
    head, oldest = await connection.fetchrow("SELECT seq, oldest_seq FROM event_head")  # type: ignore[misc]
    start = max(head - limit, oldest - 1) if since is None else since
    query = "SELECT * FROM event WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3"
    rows = [dict(row) for row in await connection.fetch(query, start, head, limit)]
    for row in rows:
        row |= {name: orjson.loads(row[name]) for name in ("before", "after") if row[name] is not None}
    return Range(head=head, oldest=oldest), [filled(FabricEvent, row) for row in rows]
