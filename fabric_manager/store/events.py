"""Events, in the order of their numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.actor import Principal
from fabric_manager.domain.operation import FabricEvent
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


async def page(
    tx: AsyncConnection, *, since: int, kinds: Sequence[str], seen_by: Principal, limit: int
) -> list[FabricEvent]:
    """Up to `limit` events numbered above `since`; `kinds` are kinds of object, none means all."""
    query = sa.text(
        f"""SELECT e.* FROM event e WHERE e.seq > :since
            {"AND e.object_kind = ANY(:kinds)" if kinds else ""} {VISIBLE} ORDER BY e.seq LIMIT :limit"""  # noqa: S608
    )
    facts = {"since": since, "limit": limit, **bounds(seen_by)}
    rows = await tx.execute(query, {**facts, "kinds": list(kinds)} if kinds else facts)
    return [filled(FabricEvent, row) for row in rows.mappings()]


async def keys_after(tx: AsyncConnection, since: int, *, limit: int) -> tuple[int, frozenset[str]]:
    """The allocation keys that the next events are about, and the number of the last one looked at."""
    query = sa.text("SELECT seq, key FROM event WHERE seq > :since ORDER BY seq LIMIT :limit")
    rows = (await tx.execute(query, {"since": since, "limit": limit})).all()
    return (rows[-1].seq if rows else since), frozenset(row.key for row in rows if row.key is not None)
