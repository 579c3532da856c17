"""When a loop takes its next turn, and that it takes one whatever happens."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from fabric_manager.domain.errors import FabricError
from fabric_manager.store.database import EpochLostError

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class Wake:
    """Something was written: whoever waits looks at once instead of at its next turn."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()

    def __call__(self) -> None:
        for event in self._events:
            event.set()

    def listener(self) -> asyncio.Event:
        event = asyncio.Event()
        self._events.add(event)
        return event


async def wait(event: asyncio.Event, timeout_s: float) -> None:
    # Not wait_for: before Python 3.12 it swallows a cancellation that comes with the event, and the loop never stops.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()


async def survive(what: str, act: Callable[[], Awaitable[Answer]]) -> Answer | None:
    """Run `act`; log what goes wrong and go on. The database being away is a line, a mistake of ours a stack.

    Raises EpochLostError: then there is nothing to go on with.
    """
    try:
        return await act()
    except FabricError as error:
        log.warning(what, extra={"code": error.code, "why": str(error)})
    except EpochLostError:
        raise
    except Exception:
        log.exception(what)
    return None
