"""What many callers want at once: few at a time, one for all who ask the same, and not all of the time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

READS_AT_ONCE_MAX = 6  # of the connections for reads; the others are for those who ask once
REST_S_MAX = 0.05


class SharedReads:
    """A read starts after it was asked for, so what a caller waited for is in it."""

    def __init__(self, at_once_max: int = READS_AT_ONCE_MAX) -> None:
        self._places = asyncio.Semaphore(at_once_max)
        self._next: dict[Hashable, asyncio.Task[Any]] = {}

    async def read(self, read: Callable[[], Awaitable[T]], *, same: Hashable | None = None) -> T:
        """The answer of `read`, or of one for the `same` that has not begun yet. It goes on without its caller."""
        what = object() if same is None else same
        task = self._next.get(what)
        if task is None:
            task = self._next[what] = asyncio.create_task(self._read(what, read))
            task.add_done_callback(_looked_at)
        answer: T = await asyncio.shield(task)
        return answer

    async def _read(self, what: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        try:
            await self._places.acquire()
        finally:
            self._next.pop(what, None)  # whoever asks from now on needs a later one
        try:
            return await read()
        finally:
            self._places.release()


def _looked_at(task: "asyncio.Task[Any]") -> None:
    """Its callers may all be gone; then its failure is nobody's."""
    if not task.cancelled():
        task.exception()


class Turns:
    """At most so many turns a second after a burst, and fewer while the event loop is busy with others."""

    def __init__(self, *, per_s_max: float, burst_max: int) -> None:
        self._each_s = 1 / per_s_max
        self._burst_s = burst_max / per_s_max
        self._free_at = 0.0
        self._one_by_one = asyncio.Lock()

    async def turn(self, longest_s: float) -> None:
        """Wait for a turn, but not longer than `longest_s`."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self._free_at = max(self._free_at, began - self._burst_s) + self._each_s
        if self._free_at <= began:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s), self._one_by_one:
                began = clock()
                await asyncio.sleep(0)
                await asyncio.sleep(min(max(clock() - began, self._each_s), REST_S_MAX))
