"""How a kind of thing is read: one by name or id, and pages in a fixed order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")
Place = tuple[str, ...]  # where a page ended: the values it was ordered by, as text
EVERYTHING: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True)  # slots and Generic do not go together
class Noun(Generic[T]):
    """`order` are unique columns, each as SQL and the type it compares in; `place` answers their values for a thing."""

    select: str
    order: Sequence[tuple[str, str]]
    one: str  # the condition that names one thing, by :ref
    filters: Mapping[str, str]  # a condition for each filter that callers may choose
    bounds: Mapping[str, str] = field(default_factory=dict)  # the same for what a bounded principal may see
    newest_first: bool = False
    read: Callable[[Mapping[Any, Any]], T]
    place: Callable[[T], Place]

    def conditions(self, wanted: Mapping[str, str]) -> list[str]:
        known = {**self.filters, **self.bounds}
        return [known[name] for name in wanted]


async def page(
    tx: AsyncConnection, noun: Noun[T], wanted: Mapping[str, str], *, after: Place | None, limit: int
) -> list[T]:
    """Up to `limit` things behind the place `after`. `wanted` holds filters and bounds of the noun."""
    clauses = noun.conditions(wanted)
    facts: dict[str, Any] = {**wanted, "limit": limit}
    if after is not None:
        columns = ", ".join(column for column, _ in noun.order)
        marks = ", ".join(f"cast(cast(:after_{n} AS text) AS {kind})" for n, (_, kind) in enumerate(noun.order))
        clauses.append(f"({columns}) {'<' if noun.newest_first else '>'} ({marks})")
        facts |= {f"after_{n}": value for n, value in enumerate(after)}
    direction = "DESC" if noun.newest_first else "ASC"
    order = ", ".join(f"{column} {direction}" for column, _ in noun.order)
    query = f"{noun.select} WHERE {' AND '.join(clauses) or 'true'} ORDER BY {order} LIMIT :limit"
    return [noun.read(row) for row in (await tx.execute(sa.text(query), facts)).mappings()]


async def one(tx: AsyncConnection, noun: Noun[T], ref: str, wanted: Mapping[str, str] = EVERYTHING) -> T | None:
    """What `ref`, a name or an id, stands for, if it is within `wanted`."""
    query = sa.text(f"{noun.select} WHERE {' AND '.join([noun.one, *noun.conditions(wanted)])}")
    row = (await tx.execute(query, {**wanted, "ref": ref})).mappings().one_or_none()
    return noun.read(row) if row is not None else None
