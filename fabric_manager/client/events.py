"""The change feed: a page, or a tail that picks up where it left off."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from types import MappingProxyType

import httpx

from fabric_manager.client import reading
from fabric_manager.client.messages import messages
from fabric_manager.client.nouns import path_of
from fabric_manager.client.reading import read
from fabric_manager.client.transport import Call, QueryValue, Transport, json_of
from fabric_manager.client.values import EventPage, FabricEvent

HOLD_S = 25  # a stream is never silent for longer either
PAUSE_AFTER_NOTHING_S = 0.1
STREAM = "text/event-stream"
EVERYWHERE: Mapping[str, str] = MappingProxyType({})


class Events:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def page(
        self,
        *,
        since: int,
        kinds: Sequence[str] = (),
        where: Mapping[str, str] = EVERYWHERE,
        hold_s: int = 0,
        limit: int | None = None,
        retry_s: float | None = None,
    ) -> EventPage:
        """Events numbered above `since`, waiting up to `hold_s` for the first one.

        `where` are further filters of `GET /v1/events`, like {"host": "node-3"}.
        Raises ProblemError `events_expired`, with `oldest_seq` in its facts, when they are no longer kept.
        """
        query: dict[str, QueryValue] = {"since": since, "kind": kinds, "wait": hold_s or None, "limit": limit, **where}
        call = Call(method="GET", path=path_of("events"), query=query, hold_s=hold_s, retry_s=retry_s)
        return read(reading.event_page, json_of(await self._transport.send(call)))

    async def head(self) -> int:
        """The number of the last event so far, as any list tells it: asking for old events may be refused."""
        call = Call(method="GET", path=path_of("fabrics"), query={"limit": 1})
        return read(reading.as_of, json_of(await self._transport.send(call)))

    async def follow(
        self,
        *,
        since: int,
        kinds: Sequence[str] = (),
        where: Mapping[str, str] = EVERYWHERE,
        retry_s: float | None = None,
    ) -> AsyncIterator[FabricEvent]:
        """Every event above `since`, each once, in order, and then the ones to come.

        Outlives a service that is away for less than `retry_s` (None: the client's).
        To resume, pass the last `seq` seen. Raises ProblemError `events_expired` when it is no longer kept.
        """
        query: dict[str, QueryValue] = {"kind": kinds, "wait": HOLD_S, **where}
        seen = since
        while True:
            call = Call(
                method="GET",
                path=path_of("events"),
                query={"since": seen, **query},
                headers={"Accept": f"{STREAM}, application/json;q=0.5"},
                hold_s=HOLD_S,
                retry_s=retry_s,
                streamed=True,
            )
            fresh = False
            async with (
                contextlib.aclosing(await self._transport.send(call)) as answer,
                contextlib.aclosing(_told(answer)) as told,
            ):
                async for reached, event in told:
                    if event is not None and reached > seen:
                        fresh = True
                        yield event
                    seen = max(seen, reached)
            if not fresh:
                await asyncio.sleep(PAUSE_AFTER_NOTHING_S)


async def _told(answer: httpx.Response) -> AsyncGenerator[tuple[int, FabricEvent | None], None]:
    """Each number that the answer reaches, with its event if it has one, until the answer ends or breaks off."""
    with contextlib.suppress(httpx.TransportError):
        if answer.headers.get("Content-Type", "").startswith(STREAM):
            async for message in messages(answer.aiter_bytes()):
                if message.event in ("bookmark", "resync"):
                    yield read(int, message.id), None
                else:
                    event = read(reading.event, read(json.loads, message.data))
                    yield event.seq, event
            return
        await answer.aread()  # a service that answers in pages alone
        page = read(reading.event_page, json_of(answer))
        for event in page.items:
            yield event.seq, event
        yield page.next_since, None
