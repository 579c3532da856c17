"""Events as their readers get them: encoded once, however many readers there are."""

from collections.abc import Iterable
from functools import cached_property

import orjson

from fabric_manager.api.answers import encode
from fabric_manager.api.views import event_view
from fabric_manager.domain.operation import FabricEvent
from fabric_manager.domain.selection import Selection
from fabric_manager.store.events import Range

TAIL_EVENTS = 4096  # kept in memory for those who are that close to the head


class Told:
    """One event, as JSON for pages and as a message of a stream."""

    def __init__(self, event: FabricEvent) -> None:
        self.event = event

    @cached_property
    def data(self) -> bytes:
        return encode(event_view(self.event))

    @property
    def fragment(self) -> orjson.Fragment:
        return orjson.Fragment(self.data)

    @cached_property
    def message(self) -> bytes:
        return message(self.event.type, self.event.seq, self.data)


def message(name: str, seq: int, data: bytes) -> bytes:
    """One message of a text/event-stream. JSON has no line break in it."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, name.encode(), data)


class Tail:
    """The last events, without gaps. Not those of another numbering: a database that was restored begins a new one."""

    def __init__(self, events_max: int = TAIL_EVENTS) -> None:
        self.events_max = events_max
        self._told: list[Told] = []
        self.head: int | None = None  # unknown until the first look
        self.oldest = 0

    def covers(self, since: int) -> bool:
        """All after `since` and up to the head is here."""
        return self.head is not None and self.head - len(self._told) <= since <= self.head

    def after(self, since: int, selection: Selection, *, limit: int) -> tuple[list[Told], int]:
        """Up to `limit` of those selected, and the number up to which there are no others. `since` must be covered."""
        assert self.head is not None
        assert self.covers(since)
        found = []
        everything = selection.everything
        for told in self._told[len(self._told) - (self.head - since) :]:
            if everything or selection.takes(told.event):
                found.append(told)
                if len(found) == limit:
                    return found, told.event.seq
        return found, self.head

    def add(self, kept: Range, fresh: Iterable[FabricEvent]) -> None:
        """`fresh` follow what is here; anything else begins anew."""
        events = list(fresh)
        follows = self.head is not None and (events[0].seq if events else kept.head + 1) == self.head + 1
        if not follows:
            self._told.clear()
        self._told += [Told(event) for event in events]
        if len(self._told) > 2 * self.events_max:
            del self._told[: -self.events_max]
        self.head = events[-1].seq if events else kept.head
        self.oldest = kept.oldest
