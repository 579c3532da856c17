"""What any process does beside driving hardware: numbering events, and ending what has run out."""

import asyncio

from fabric_manager.domain.actor import RECONCILER, Actor
from fabric_manager.reconciler.pace import Pace
from fabric_manager.reconciler.turns import Wake, survive, wait
from fabric_manager.store import verbs, work
from fabric_manager.store.database import Database

EVENT_BATCH_MAX = 1000
EXPIRED_PER_PASS_MAX = 256


async def sequence(db: Database, wake: Wake, pace: Pace) -> None:
    """Number events as they come; any process may do it, one at a time does."""
    due = wake.listener()
    while True:
        await survive("events not numbered", lambda: work.sequence_events(db, batch_max=EVENT_BATCH_MAX))
        await wait(due, pace.poll_s)


async def keep_house(db: Database, wake: Wake, pace: Pace) -> None:
    """Release reservations and failed allocations whose time is over."""
    while True:
        if await survive("nothing expired", lambda: expire(db)):
            wake()
        await asyncio.sleep(pace.poll_s)


async def expire(db: Database) -> int:
    """Each in a transaction of its own; answers how many."""
    actor = Actor(name=RECONCILER, cause="expired")
    for count in range(EXPIRED_PER_PASS_MAX):
        if not await verbs.expire_one(db, actor=actor):
            return count
    return EXPIRED_PER_PASS_MAX
