"""Long polls: answer as soon as it is so, or with what is so when the time is over."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from fabric_manager.api.feed import RECHECK_S, Feed
from fabric_manager.domain.errors import FabricError

T = TypeVar("T")

WAIT_S_MAX = 30


async def until(
    feed: Feed,
    key: str | None,
    read: Callable[[], Awaitable[T]],
    done: Callable[[T], bool],
    *,
    wait_s: float,
    known: T | None = None,
    same: Hashable | None = None,
) -> T:
    """Read until `done`, for at most `wait_s`. `known` is a write's own answer, and outlives the database.

    Those who wait with an equal `same` share their reads.
    """
    ends_at = asyncio.get_running_loop().time() + wait_s
    with feed.watch(key) as bell:
        while True:
            try:
                value = await (feed.reads.read(read, same=same) if wait_s > 0 else read())
            except FabricError:
                if known is None:
                    raise
                return known
            left_s = ends_at - asyncio.get_running_loop().time()
            if done(value) or left_s <= 0 or feed.closing:
                return value
            await bell.wait(min(left_s, RECHECK_S))


def preferred_wait_s(prefer: str | None) -> int:
    """`wait=N` of a Prefer header (RFC 7240), cut to what we offer; a preference that is not understood is none."""
    match = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?([0-9]{1,6})\"?\s*(?:[,;]|$)", prefer or "")
    return min(int(match[1]), WAIT_S_MAX) if match else 0
