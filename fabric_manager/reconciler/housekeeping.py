"""What any process does beside driving hardware: numbering events, and ending what has run out."""

import asyncio
import logging

from fabric_manager.domain.actor import RECONCILER, Actor
from fabric_manager.reconciler.pace import Pace
from fabric_manager.reconciler.turns import Wake, survive, wait
from fabric_manager.store import invariants, verbs, work
from fabric_manager.store.database import Database
from fabric_manager.telemetry import metrics

log = logging.getLogger(__name__)

EVENT_BATCH_MAX = 1000
RETENTION_S = 10.0  # between two looks for events that are too old
SNAPSHOT_S_MAX = 15.0  # a reader's view of the database is over by then: 5 s idle and a few statements of 2 s
EXPIRED_PER_PASS_MAX = 256
VIOLATIONS_LOGGED_MAX = 10  # of each check; the others are in the metric, and in GET /v1/invariants


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
        await survive("nothing forgotten", lambda: verbs.forget(db, batch_max=EXPIRED_PER_PASS_MAX))
        await asyncio.sleep(pace.poll_s)


async def keep_events(db: Database, events_keep: int) -> None:
    """Drop the oldest partitions of events, one at a time, while more than `events_keep` are kept without them."""
    while True:
        done = await survive(
            "old events not dropped", lambda: work.expire_events(db, keep=events_keep, grace_s=SNAPSHOT_S_MAX)
        )
        if done is not None:
            log.info("old events expired", extra=dict(done))
        await asyncio.sleep(RETENTION_S)


async def keep_promises_checked(db: Database, every_s: float) -> None:
    """Hold the promises against the live database now and then; what is broken is a metric and a line."""
    while True:
        await survive("promises not checked", lambda: check_promises(db))
        await asyncio.sleep(every_s)


async def check_promises(db: Database) -> None:
    async with db.snapshot() as tx:
        checks = await invariants.check_all(tx)
    for check in checks:
        metrics.INVARIANT_VIOLATIONS.labels(check=check.name).set(len(check.violations))
        for found in check.violations[:VIOLATIONS_LOGGED_MAX]:
            log.error("promise broken", extra={"check": check.name, "objects": found.objects, "detail": found.detail})
    metrics.INVARIANTS_CHECKED_AT.set_to_current_time()


async def expire(db: Database) -> int:
    """Each in a transaction of its own; answers how many."""
    actor = Actor(name=RECONCILER, cause="expired")
    for count in range(EXPIRED_PER_PASS_MAX):
        if not await verbs.expire_one(db, actor=actor):
            return count
    return EXPIRED_PER_PASS_MAX
