"""Events as a stream (text/event-stream): resumable, and no listener waits for another."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi import Response
from starlette.types import Receive, Scope, Send

from fabric_manager.api.event_reading import SEQ_MAX, Found, check_kept, latest
from fabric_manager.api.feed import EVERYTHING, Bell
from fabric_manager.api.problems import invalid
from fabric_manager.api.services import Services
from fabric_manager.api.telling import message
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.selection import Selection
from fabric_manager.store import events
from fabric_manager.store.events import Range
from fabric_manager.telemetry import metrics

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
BOOKMARK_S = 5.0
KEEP_ALIVE_S = 15.0
STALLED_S_MAX = 60.0  # a listener that takes nothing for so long is cut off
MESSAGES_MAX = 250  # in one piece, so that listeners take turns
KEEP_ALIVE = b": keep-alive\n\n"
LAST_EVENT_ID = re.compile(r"[0-9]{1,16}")

STREAM: dict[str, Any] = {
    "schema": {
        "type": "string",
        "description": "Messages of `id` (the event's number), `event` (its type) and `data` (the event as on a page)."
        " `event: bookmark` carries only a number: nothing else was selected up to it. `event: resync` ends a stream"
        " whose reader was too slow, or whose place is no longer kept: resume after its `id`. Lines that begin with"
        " a colon keep the connection alive.",
    },
    "example": 'id: 1042\nevent: allocation.bound\ndata: {"seq":1042,"type":"allocation.bound","key":"7c9e:b1f0"}\n\n'
    'id: 1050\nevent: bookmark\ndata: {"seq":1050}\n\n',
}


def prefers_stream(accept: str | None) -> bool:
    """A stream is for who names it and does not like JSON better."""
    quality = {}
    for part in (accept or "").split(","):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        quality[media_type] = float(weight) if re.fullmatch(r"[01](\.[0-9]{0,3})?", weight) else 0.0
    return quality.get(MEDIA_TYPE, 0.0) > 0 and quality[MEDIA_TYPE] >= quality.get("application/json", 0.0)


def resume_after(last_event_id: str | None, since: int | None) -> int | None:
    """The number after which a reader wants to go on. Raises FabricError validation_failed."""
    if not last_event_id:
        return since
    if not LAST_EVENT_ID.fullmatch(last_event_id) or int(last_event_id) > SEQ_MAX:
        raise invalid("Last-Event-ID", "is not the id of an event")
    return int(last_event_id)


def mark(name: str, seq: int, **facts: Any) -> bytes:
    return message(name, seq, orjson.dumps({"seq": seq, **facts}))


async def kept_now(services: Services) -> Range:
    async with services.db.snapshot() as tx:
        return await events.kept(tx)


class EventStream(Response):
    """Takes from the process's memory what is new. One that has fallen behind it, once it was there, was too slow."""

    media_type = MEDIA_TYPE

    def __init__(self, services: Services, selection: Selection, *, reached: int, greeting: bytes) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})  # a proxy that collects would hold the messages back
        del self.headers["content-length"]
        self._services = services
        self._feed = services.feed
        self._selection = selection
        self._reached = reached  # nothing that was asked for up to here is left to send
        self._told = reached  # the last id that the reader got
        self._greeting = greeting
        self._near = False
        self._left = False

    @classmethod
    async def after(cls, services: Services, selection: Selection, since: int | None) -> "EventStream":
        """A stream of what follows `since`; None is now. Raises FabricError events_expired before anything is sent."""
        kept = await services.feed.reads.read(lambda: kept_now(services), same="kept")
        if since is None:  # the reader learns at once where to resume
            return cls(services, selection, reached=kept.head, greeting=mark("bookmark", kept.head))
        check_kept(since, kept)
        return cls(services, selection, reached=since, greeting=KEEP_ALIVE)

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with self._feed.watch(EVERYTHING) as bell, metrics.EVENT_LISTENERS.track_inprogress():
            watching = asyncio.create_task(self._watch_for_leaving(receive, bell))
            try:
                async for piece in self._pieces(bell):
                    async with self._feed.sending(STALLED_S_MAX):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            except TimeoutError:
                log.info("a listener takes nothing and is cut off", extra={"seq": self._told})
            finally:
                watching.cancel()

    async def _watch_for_leaving(self, receive: Receive, bell: Bell) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        bell.ring()

    async def _pieces(self, bell: Bell) -> AsyncIterator[bytes]:
        """What to send, until the service stops, the reader is gone, or it has to resume."""
        clock = asyncio.get_running_loop().time
        marked_at = spoken_at = clock()
        yield self._greeting
        while not self._feed.closing and not self._left:
            found = await self._next()
            if found is None:
                yield mark("resync", self._reached)
                return
            if found.items:
                self._told = found.items[-1].event.seq
                spoken_at = clock()
                yield b"".join(told.message for told in found.items)
            elif self._reached > self._told and clock() - marked_at >= BOOKMARK_S:
                self._told = self._reached
                marked_at = spoken_at = clock()
                yield mark("bookmark", self._reached)
            elif clock() - spoken_at >= KEEP_ALIVE_S:
                spoken_at = clock()
                yield KEEP_ALIVE
            elif self._reached >= found.kept.head:
                await bell.wait(BOOKMARK_S)

    async def _next(self) -> Found | None:
        """What follows; nothing while the database is away. None: the reader has to resume."""
        near = self._feed.tail.covers(self._reached)
        if self._near and not near:
            return None
        self._near = near
        try:
            found = await latest(self._services, self._selection, self._reached, MESSAGES_MAX)
        except FabricError as error:
            if error.code is Code.EVENTS_EXPIRED:
                return None
            return Found(items=[], reached=self._reached, kept=Range(head=self._reached, oldest=0))
        self._reached = found.reached
        return found
