"""Objects as they change: the event feed says when to look again."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from fabric_manager.client import Document, FabricManager, ProblemError

GATHER_S = 0.2  # what happens within is shown at once
WATCH_RETRY_S = 300.0
EVENTS_MAX = 1000
HOLD_S = 25


async def changed(
    manager: FabricManager, noun: str, name: str | None, filters: Mapping[str, str]
) -> AsyncIterator[list[Document]]:
    """First all that match, then, whenever something happened, those that look different since."""
    since = await manager.events.head()  # before looking: what happens meanwhile is looked at once more
    seen: dict[str, Document] = {}
    first = True
    loop = asyncio.get_running_loop()
    while True:
        began_s = loop.time()
        found = await _matching(manager, noun, name, filters)
        fresh = [each for each in found if seen.get(identity(each)) != each]
        seen = {identity(each): each for each in found}
        if fresh or first:
            yield fresh
        first = False
        took_s = loop.time() - began_s
        since = await _until_something_happens(manager, since)
        await asyncio.sleep(max(GATHER_S, took_s))  # a long list is read at most half of the time


def identity(document: Document) -> str:
    return str(document.get("id") or "/".join(str(value) for value in document.values() if not isinstance(value, dict)))


async def _matching(manager: FabricManager, noun: str, name: str | None, filters: Mapping[str, str]) -> list[Document]:
    if name is None:
        return await manager.noun(noun).list(filters)
    return [await manager.noun(noun).get(name)]


async def _until_something_happens(manager: FabricManager, since: int) -> int:
    """The number up to which events are known, as soon as that is more than `since`."""
    while True:
        try:
            page = await manager.events.page(since=since, hold_s=HOLD_S, limit=EVENTS_MAX, retry_s=WATCH_RETRY_S)
        except ProblemError as problem:
            if problem.code != "events_expired":
                raise
            return await manager.events.head()  # too far behind to know what: everything is looked at again
        if page.next_since > since:
            return page.next_since
