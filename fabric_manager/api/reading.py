"""The two ways every noun is read: one of it, and a page of it."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import Request, Response

from fabric_manager.api import answers
from fabric_manager.api.listing import answer_many
from fabric_manager.api.paging import PageQuery, decode, next_cursor
from fabric_manager.api.services import services_of
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.store import events, nouns
from fabric_manager.store.nouns import EVERYTHING, Noun

T = TypeVar("T")
Shown = Mapping[str, Any]


def version_of(body: Shown) -> int | str:
    """The generation, which does not cover what is shown to one cluster; of a thing that has none, a digest of all."""
    if body.get("publishable_bytes") is not None:
        return f"{body['generation']}-{body['publishable_bytes']}"
    if "generation" in body:
        return int(body["generation"])
    return hashlib.sha256(answers.encode(body)).hexdigest()[:16]


def not_found(what: str, ref: str) -> FabricError:
    return FabricError(Code.NOT_FOUND, f"there is no {what} {ref!r}")


async def answer_one(
    request: Request,
    noun: Noun[T],
    what: str,
    ref: str,
    view: Callable[[T], Shown],
    *,
    bounds: Mapping[str, str] = EVERYTHING,
) -> Response:
    async with services_of(request).db.snapshot() as tx:
        seq = await events.head(tx)
        found = await nouns.one(tx, noun, ref, bounds)
    if found is None:
        raise not_found(what, ref)
    body = view(found)
    return answers.single(request, body, version=version_of(body), seq=seq)


async def answer_page(
    request: Request,
    noun: Noun[T],
    query: PageQuery,
    view: Callable[[T], Shown],
    *,
    bounds: Mapping[str, str] = EVERYTHING,
) -> Response:
    """The page that `query` asks for; its fields of the same name as a filter of the noun restrict it."""
    names = {*noun.filters, *noun.shows}
    wanted = {name: str(value) for name in names if (value := getattr(query, name, None)) is not None}
    sort: str | None = getattr(query, "sort", None)
    order, _ = noun.sorted_by(sort)
    after = decode(query.cursor, [kind for _, kind in order.columns])

    async def read(tx: Any) -> Shown:
        found = await nouns.page(tx, noun, {**wanted, **bounds}, sort=sort, after=after, limit=query.limit + 1)
        items = [view(thing) for thing in found[: query.limit]]
        return {"items": items, "next_cursor": next_cursor(found, query.limit, order.place)}

    return await answer_many(request, noun.kinds, read, seen_by=bounds)
