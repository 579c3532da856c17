"""The change feed: a page, or a tail that picks up where it left off."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from fabric_manager.client import reading
from fabric_manager.client.nouns import path_of
from fabric_manager.client.reading import read
from fabric_manager.client.transport import Call, QueryValue, Transport, json_of
from fabric_manager.client.values import EventPage, FabricEvent

HOLD_S = 25
PAUSE_AFTER_NOTHING_S = 0.1


class Events:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def page(
        self,
        *,
        since: int,
        kinds: Sequence[str] = (),
        hold_s: int = 0,
        limit: int | None = None,
        retry_s: float | None = None,
    ) -> EventPage:
        """Events numbered above `since`, waiting up to `hold_s` for the first one.

        Raises ProblemError `events_expired`, with `oldest_seq` in its facts, when they are no longer kept.
        """
        query: dict[str, QueryValue] = {"since": since, "kind": kinds, "wait": hold_s or None, "limit": limit}
        call = Call(method="GET", path=path_of("events"), query=query, hold_s=hold_s, retry_s=retry_s)
        return read(reading.event_page, json_of(await self._transport.send(call)))

    async def head(self) -> int:
        """The number of the last event so far, as any list tells it: asking for old events may be refused."""
        call = Call(method="GET", path=path_of("fabrics"), query={"limit": 1})
        return read(reading.as_of, json_of(await self._transport.send(call)))

    async def follow(
        self, *, since: int, kinds: Sequence[str] = (), retry_s: float | None = None
    ) -> AsyncIterator[FabricEvent]:
        """Every event above `since`, each once, in order, and then the ones to come.

        Outlives a service that is away for less than `retry_s` (None: the client's).
        To resume, pass the last `seq` seen.
        """
        seen = since
        while True:
            page = await self.page(since=seen, kinds=kinds, hold_s=HOLD_S, retry_s=retry_s)
            fresh = [event for event in page.items if event.seq > seen]
            for event in fresh:
                yield event
                seen = event.seq
            seen = max(seen, page.next_since)
            if not fresh:
                await asyncio.sleep(PAUSE_AFTER_NOTHING_S)
