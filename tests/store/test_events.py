"""The feed of events: numbered without gaps by whoever is at it, whatever its writers do."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import sqlalchemy as sa

from fabric_manager.domain.errors import FabricError
from fabric_manager.domain.lifecycle import Phase
from fabric_manager.domain.operation import FabricEvent
from fabric_manager.domain.selection import EXACT, Selection
from fabric_manager.domain.units import MiB
from fabric_manager.store import events, work
from fabric_manager.store.database import Database
from tests.racks import a_fabric
from tests.store.allocations import EVERYBODY, Life

Identities = Callable[[], UUID]
WRITERS = 16
CLAIMS_EACH = 8
DEADLINE_S = 60


async def everything(db: Database, *, since: int = 0) -> list[FabricEvent]:
    async with db.snapshot() as tx:
        head = await events.head(tx)
        page = await events.page(tx, Selection(seen_by=EVERYBODY), since=since, head=head, limit=100_000)
        return list(page.items)


async def sequencer(db: Database, stop: asyncio.Event) -> int:
    """How many batches it numbered until it was told to stop."""
    batches = 0
    while not stop.is_set():
        batches += await work.sequence_events(db, batch_max=7) is not None
    return batches


class Reader:
    """Tails the feed in small pages, and holds each page's snapshot against the events it is said to contain."""

    def __init__(self) -> None:
        self.seen: list[FabricEvent] = []

    async def follow(self, db: Database, enough: Callable[[list[FabricEvent]], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not enough(self.seen):
                await self.read(db)

    async def read(self, db: Database) -> None:
        since = self.seen[-1].seq if self.seen else 0
        async with db.snapshot() as tx:
            as_of = await events.head(tx)
            page = (await events.page(tx, Selection(seen_by=EVERYBODY), since=since, head=as_of, limit=20)).items
            rows = await tx.execute(sa.text("SELECT key, phase FROM allocation"))
            phases = {row.key: row.phase for row in rows}
        assert [event.seq for event in page] == list(range(since + 1, since + 1 + len(page)))
        self.seen += page
        for event in page:
            assert event.seq <= as_of
            if event.type in ("allocation.reserved", "allocation.released"):
                assert event.key in phases  # what the feed tells has happened in the rows
            if event.type == "allocation.released":
                assert phases[event.key] == Phase.RELEASED


async def test_a_tailing_reader_under_sixteen_writers_misses_nothing_and_sees_no_gap(
    db: Database, database_url: str, identities: Identities
) -> None:
    life = Life(db, identities, await a_fabric(db, identities, dcds=2))
    second = Database(database_url)
    keys = {f"w{writer}-{n}" for writer in range(WRITERS) for n in range(CLAIMS_EACH)}

    async def write(writer: int) -> None:
        for n in range(CLAIMS_EACH):
            await life.claim(f"w{writer}-{n}", size_bytes=2 * MiB, pool="dcds")
            await life.release(f"w{writer}-{n}")

    def all_released(seen: list[FabricEvent]) -> bool:
        return {event.key for event in seen if event.type == "allocation.released"} == keys

    stop, reader = asyncio.Event(), Reader()
    sequencers = [asyncio.create_task(sequencer(each, stop)) for each in (db, second)]
    following = asyncio.create_task(reader.follow(second, all_released))
    try:
        await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
        await following
    finally:
        stop.set()
        batches = await asyncio.gather(*sequencers)
        await second.close()
    assert min(batches) > 0  # both were at it
    assert await life.column("SELECT count(*) FROM event_outbox") == [0]
    assert [event.seq for event in reader.seen] == list(range(1, len(reader.seen) + 1))
    assert reader.seen == await everything(db)
    for key in keys:
        told = [event for event in reader.seen if event.key == key]
        assert [event.type for event in told] == ["allocation.reserved", "allocation.released"]
        assert all(earlier.at <= later.at for earlier, later in pairwise(told))
    await life.sums_are_right()


async def record(tx: "asyncpg.Connection[Any]", key: str) -> None:
    await tx.execute(
        "SELECT record_event('test.event', 'test', $1::text, '{\"actor\": \"test\"}', NULL, NULL, $2::jsonb)",
        key,
        json.dumps({"key": key}),
    )


async def test_a_writer_that_rolls_back_leaves_no_hole_and_a_slow_one_is_not_lost(
    db: Database, database_url: str
) -> None:
    slow, quick = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    try:
        slow_transaction = slow.transaction()
        await slow_transaction.start()
        await record(slow, "slow")
        with suppress(ZeroDivisionError):
            async with quick.transaction():
                await record(quick, "never")
                raise ZeroDivisionError
        async with quick.transaction():
            await record(quick, "quick")
        assert await work.sequence_events(db, batch_max=100) == 1
        assert [(e.seq, e.key) for e in await everything(db)] == [(1, "quick")]
        await slow_transaction.commit()
        assert await work.sequence_events(db, batch_max=100) == 2
        assert [(e.seq, e.key) for e in await everything(db, since=1)] == [(2, "slow")]
    finally:
        await slow.close()
        await quick.close()


async def test_a_second_sequencer_steps_back_and_finds_nothing_left(db: Database, database_url: str) -> None:
    first = await asyncpg.connect(database_url)
    try:
        await record(first, "one")
        async with first.transaction():
            assert await first.fetchval("SELECT sequence_events('{\"batch_max\": 10}')") == 1
            assert await work.sequence_events(db, batch_max=10) is None
        assert await work.sequence_events(db, batch_max=10) == 1
    finally:
        await first.close()
    assert len(await everything(db)) == 1


async def test_a_sequencer_that_dies_half_way_changed_nothing(db: Database, database_url: str) -> None:
    dying = await asyncpg.connect(database_url)
    await record(dying, "one")
    transaction = dying.transaction()
    await transaction.start()
    await dying.fetchval("SELECT sequence_events('{\"batch_max\": 10}')")
    dying.terminate()
    async with asyncio.timeout(DEADLINE_S):
        while (head := await work.sequence_events(db, batch_max=10)) is None:
            pass
    assert head == 1
    assert [(e.seq, e.key) for e in await everything(db)] == [(1, "one")]


async def test_each_batch_is_announced_once_with_its_head(db: Database, database_url: str) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with db.listening("fabric_events", heard.put_nowait) as listener:
        writer = await asyncpg.connect(database_url)
        for n in range(5):
            await record(writer, f"k{n}")
        await writer.close()
        for expected in ("3", "5"):
            await work.sequence_events(db, batch_max=3)
            async with asyncio.timeout(DEADLINE_S):
                assert await heard.get() == expected
        await work.sequence_events(db, batch_max=3)  # nothing to number: nothing to say
        await listener.fetchval("SELECT 1")
        assert heard.empty()


async def test_the_numbers_go_on_over_the_edge_of_a_partition(db: Database, database_url: str) -> None:
    writer = await asyncpg.connect(database_url)
    try:
        await writer.execute("UPDATE event_head SET seq = 999997, oldest_seq = 999998")
        for n in range(6):
            await record(writer, f"k{n}")
        assert await work.sequence_events(db, batch_max=4) == 1_000_001
        assert await work.sequence_events(db, batch_max=4) == 1_000_003
        read = await everything(db, since=999_997)
        assert [(e.seq, e.key) for e in read] == [(999_998 + n, f"k{n}") for n in range(6)]
        assert await everything(db, since=1_000_001) == read[4:]
        rows = await writer.fetch("SELECT DISTINCT tableoid::regclass::text AS part FROM event ORDER BY 1")
        assert [row["part"] for row in rows] == ["event_0", "event_1"]
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
            await writer.execute("DELETE FROM event WHERE seq = 1000002")
    finally:
        await writer.close()


async def test_as_of_is_the_point_from_which_a_watcher_misses_nothing(db: Database, identities: Identities) -> None:
    """List, remember as_of, then watch from there: every change is in the list or in the feed."""
    life = Life(db, identities, await a_fabric(db, identities, dcds=1))
    await life.claim("listed", pool="dcds", size_bytes=MiB)
    await life.sequence()
    await life.claim("written", pool="dcds", size_bytes=MiB)  # committed, not yet numbered
    async with db.snapshot() as tx:
        as_of = await events.head(tx)
        await life.claim("later", pool="dcds", size_bytes=MiB)
        await life.sequence()
        assert await events.head(tx) == as_of  # a snapshot does not move
        listed = set((await tx.execute(sa.text("SELECT key FROM allocation"))).scalars())
    followed = {event.key for event in await everything(db, since=as_of) if event.object_kind == "allocation"}
    assert listed == {"listed", "written"}
    assert followed == {"written", "later"}
    async with db.listening("fabric_events", print) as connection:
        kept, fresh = await events.newest(connection, since=as_of, limit=100)
    assert (kept.head, {event.key for event in fresh}) == (fresh[-1].seq, {"written", "later"})
    assert fresh == await everything(db, since=as_of)


async def test_the_story_of_a_key_that_was_only_refused_is_kept(db: Database, identities: Identities) -> None:
    life = Life(db, identities, await a_fabric(db, identities))
    with pytest.raises(FabricError):
        await life.claim("never", size_bytes=1 << 50)
    await life.sequence()
    (told,) = [event for event in await everything(db) if event.key == "never"]
    assert (told.type, told.actor) == ("allocation.refused", "test")


async def test_a_page_reads_no_more_rows_than_it_may_however_long_the_history(db: Database, database_url: str) -> None:
    """Each filter on its own, looking for what is not there: the worst case."""
    history = 100_000
    writer = await asyncpg.connect(database_url)
    try:
        await writer.execute(
            """INSERT INTO event (seq, at, type, object_kind, object_id, key, claim_uid, cluster, tenant, host, device,
                                  pool, actor)
               SELECT n, now(), 'allocation.bound', 'allocation', n, 'k' || n, 'u' || n, 'c' || n % 3, 't' || n % 30,
                      'h' || n % 100, 'd' || n % 100, 'p' || n % 5, 'test' FROM generate_series(1, $1::bigint) n""",
            history,
        )
        await writer.execute("UPDATE event_head SET seq = $1", history)
        await writer.execute("ANALYZE event")
    finally:
        await writer.close()
    for name in EXACT:
        selection = Selection(seen_by=EVERYBODY, **{name: "nobody"})
        async with db.snapshot() as tx:
            page = await events.page(tx, selection, since=0, head=history, limit=100)
            query, facts = events.page_query(selection, since=0, end=page.reached, limit=100)
            plan = (await tx.execute(sa.text(f"EXPLAIN {query.text}"), facts)).scalars().all()
        assert page.items == ()
        assert "Seq Scan" not in str(plan), (name, plan)
        if name in events.INDEXED:
            assert page.reached == history
            assert f"_{name}_seq_idx" in str(plan), (name, plan)
        else:
            assert page.reached == events.SCAN_MAX
