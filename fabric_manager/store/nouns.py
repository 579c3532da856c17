"""How a kind of thing is read: one by name or id, and pages in an order that callers choose."""

# ruff: noqa: S608 (conditions are put together from constants of ours; values are parameters)

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")
Place = tuple[str, ...]  # where a page ended: the values it was ordered by, as text
EVERYTHING: Mapping[str, str] = {}
Condition = str | Mapping[str, str]  # SQL, or for a word of a closed set the SQL of each word: so partial indexes apply


def called(table: str, name: str) -> str:
    """SQL for the id of what the parameter `name` names, by name or id."""
    return f"(SELECT id FROM {table} WHERE name = :{name} OR id = CAST(:{name}_id AS uuid))"


def one_of(column: str, words: Sequence[str]) -> Mapping[str, str]:
    return {word: f"{column} = '{word}'" for word in words}


def id_or_none(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)  # slots and Generic do not go together
class Sort(Generic[T]):
    """Unique columns, each as SQL and the type it compares in, with an index; `place` answers their values."""

    columns: Sequence[tuple[str, str]]
    place: Callable[[T], Place]


@dataclass(frozen=True, kw_only=True)
class Noun(Generic[T]):
    """`kinds` are the kinds of object whose events and change marks tell that something shown here changed."""

    select: str
    kinds: frozenset[str]
    sorts: Mapping[str, Sort[T]]
    sort: str  # the one used when nobody chooses; "-" in front means backwards
    one: str  # the condition that names one thing, by :ref and :ref_id
    filters: Mapping[str, Condition]  # a condition for each filter that callers may choose
    bounds: Mapping[str, str] = field(default_factory=dict)  # the same for what a bounded principal may see
    shows: frozenset[str] = frozenset()  # parameters of the select itself
    read: Callable[[Mapping[Any, Any]], T]

    def sorted_by(self, wanted: str | None) -> tuple[Sort[T], bool]:
        """The sort called `wanted`, and whether it runs backwards."""
        name = wanted or self.sort
        return self.sorts[name.removeprefix("-")], name.startswith("-")

    def conditions(self, wanted: Mapping[str, str]) -> list[str]:
        known = {**self.filters, **self.bounds}
        chosen = [(known[name], value) for name, value in wanted.items() if name not in self.shows]
        return [condition if isinstance(condition, str) else condition[value] for condition, value in chosen]


def with_ids(query: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of `query`; for those that go by name or id, both."""
    ids = {f"{name}_id": id_or_none(value) for name, value in wanted.items() if f":{name}_id" in query}
    return {name: value for name, value in wanted.items() if f":{name}" in query} | ids


async def page(
    tx: AsyncConnection,
    noun: Noun[T],
    wanted: Mapping[str, str],
    *,
    sort: str | None = None,
    after: Place | None,
    limit: int,
) -> list[T]:
    """Up to `limit` things behind the place `after`. `wanted` holds filters, bounds and what the noun shows."""
    order, backwards = noun.sorted_by(sort)
    clauses = noun.conditions(wanted)
    marks: dict[str, Any] = {}
    if after is not None:
        clauses += behind(order.columns, backwards=backwards)
        marks = {f"after_{n}": value for n, value in enumerate(after)}
    direction = "DESC" if backwards else "ASC"
    by = ", ".join(f"{column} {direction}" for column, _ in order.columns)
    query = f"{noun.select} WHERE {' AND '.join(clauses) or 'true'} ORDER BY {by} LIMIT :limit"
    facts = {**with_ids(query, wanted), **marks, "limit": limit}
    return [noun.read(row) for row in (await tx.execute(sa.text(query), facts)).mappings()]


def behind(columns: Sequence[tuple[str, str]], *, backwards: bool) -> list[str]:
    """Conditions for what comes after the marks :after_0 …; the first column alone can lead an index there."""
    compares = "<" if backwards else ">"
    marks = [f"cast(cast(:after_{n} AS text) AS {kind})" for n, (_, kind) in enumerate(columns)]
    names = [column for column, _ in columns]
    whole = f"({', '.join(names)}) {compares} ({', '.join(marks)})"
    return [whole] if len(columns) == 1 else [f"{names[0]} {compares}= {marks[0]}", whole]


async def one(tx: AsyncConnection, noun: Noun[T], ref: str, wanted: Mapping[str, str] = EVERYTHING) -> T | None:
    """What `ref`, a name or an id, stands for, if it is within `wanted`."""
    query = f"{noun.select} WHERE {' AND '.join([noun.one, *noun.conditions(wanted)])}"
    row = (await tx.execute(sa.text(query), with_ids(query, {**wanted, "ref": ref}))).mappings().one_or_none()
    return noun.read(row) if row is not None else None
