"""What will happen later in the rack, in order of time. Nothing runs by itself: `run_due` precedes each command."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Action = Callable[[float], None]  # is given the time at which it was due


@dataclass(order=True, slots=True)
class _Entry:
    due_s: float
    number: int  # entries due together run in the order they were made
    owner: str = field(compare=False)
    kind: str = field(compare=False)
    action: Action = field(compare=False)


class Agenda:
    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._number = 0

    def at(self, due_s: float, *, owner: str, kind: str, action: Action) -> None:
        self._number += 1
        heapq.heappush(self._entries, _Entry(due_s, self._number, owner, kind, action))

    def drop(self, *, owner: str, kind: str | None = None) -> None:
        """Forget what `owner` planned; with `kind`, only entries of that kind."""
        self._entries = [e for e in self._entries if e.owner != owner or kind not in (None, e.kind)]
        heapq.heapify(self._entries)

    def run_due(self, now_s: float) -> set[str]:
        """Run everything due by `now_s`, also what those actions plan in turn. Returns whose actions ran."""
        owners: set[str] = set()
        while self._entries and self._entries[0].due_s <= now_s:
            entry = heapq.heappop(self._entries)
            owners.add(entry.owner)
            entry.action(entry.due_s)
        return owners
