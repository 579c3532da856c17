"""What the rack was asked, in order. Bounded, and only of this process: it is for looking, not for keeping."""

from collections import deque
from typing import Any

ENTRIES_MAX = 10_000


class Journal:
    def __init__(self) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=ENTRIES_MAX)
        self._number = 0

    def note(
        self,
        *,
        at_s: float,
        channel: str,
        op: str,
        component: str,
        args: dict[str, Any],
        code: int | None,
        result: dict[str, Any],
    ) -> None:
        """`code` None: it was not executed."""
        self._number += 1
        self._entries.append(
            {
                "number": self._number,
                "at_s": round(at_s, 6),
                "channel": channel,
                "op": op,
                "component": component,
                "args": args,
                "code": code,
                "result": result,
            }
        )

    def since(self, number: int) -> list[dict[str, Any]]:
        return [entry for entry in self._entries if entry["number"] > number]
