"""Whether anything changed, asked without reading what may have changed."""

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The head of this snapshot, and what all things of some kinds look like in it: the same word, the same things.

    None while an event or a mark of theirs waits to be counted: the rows are ahead of any word for them.
    """

    head: int
    word: str | None


# Tombstones run out by themselves and nobody writes a row: the last one that did belongs to the word.
STANDING = sa.text(
    """SELECT h.seq AS head, coalesce(k.seq, 0) AS seq, coalesce(k.changes, 0) AS changes,
              CASE WHEN :expiring THEN (SELECT extract(epoch FROM max(expires_at)) FROM allocation_key
                                        WHERE expires_at <= now()) END AS expired,
              EXISTS (SELECT FROM event_outbox WHERE object_kind = ANY(:kinds))
                OR EXISTS (SELECT FROM change_mark WHERE kind = ANY(:kinds)) AS waiting
       FROM event_head h, LATERAL (
         SELECT max(seq) AS seq, sum(changes) AS changes FROM event_kind_head WHERE kind = ANY(:kinds)) k"""
)


async def standing(tx: AsyncConnection, kinds: Collection[str], *, expiring: bool = False) -> Standing:
    """`expiring` is for lists that leave out what a tombstone no longer remembers."""
    row = (await tx.execute(STANDING, {"kinds": sorted(kinds), "expiring": expiring})).one()
    word = f"{row.seq}.{row.changes}" + (f".{row.expired}" if row.expired is not None else "")
    return Standing(head=row.head, word=None if row.waiting else word)
