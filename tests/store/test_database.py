"""A database that fails: each failure has its word, comes in time, and is over when the database is back."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import sqlalchemy as sa

from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.store import schema, verbs
from fabric_manager.store.database import RETRIES_MAX, Database, EpochLostError
from tests.conftest import run_on
from tests.external_postgres import ExternalPostgres
from tests.racks import ACTOR, a_fabric
from tests.store.allocations import Life

Identities = Callable[[], UUID]
ANSWER_S = 5.0  # whatever happens, the caller knows by then
RECOVERY_S = 20.0

SLEEP = """CREATE FUNCTION test_sleep(arg jsonb) RETURNS jsonb LANGUAGE plpgsql AS
           $$ BEGIN PERFORM pg_sleep((arg->>'s')::float); RETURN '"slept"'; END $$"""


async def call(db: Database) -> Any:
    return await db.call("known_fabrics", {})


async def transaction(db: Database) -> Any:
    async with db.transaction() as tx:
        return (await tx.execute(sa.text("SELECT 1"))).scalar_one()


async def snapshot(db: Database) -> Any:
    async with db.snapshot() as tx:
        return (await tx.execute(sa.text("SELECT 1"))).scalar_one()


WAYS = (call, transaction, snapshot)
Way = Callable[[Database], Awaitable[Any]]


async def fails(code: Code, what: Awaitable[Any]) -> FabricError:
    """`what` ends in that error, in time."""
    began = time.monotonic()
    with pytest.raises(FabricError) as failed:
        await what
    assert failed.value.code is code
    assert time.monotonic() - began < ANSWER_S
    return failed.value


async def recovers(db: Database, way: Way) -> None:
    """It may fail while broken connections are found out, with the right word, but not for long."""
    async with asyncio.timeout(RECOVERY_S):
        while True:
            try:
                await way(db)
            except FabricError as error:
                assert error.code is Code.DATABASE_UNAVAILABLE
                await asyncio.sleep(0.05)
            else:
                return


async def warm(db: Database) -> None:
    """Several open connections of both kinds."""
    await asyncio.gather(*(way(db) for way in WAYS for _ in range(4)))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def terminate_others(url: str) -> None:
    async with connected(url) as admin:
        await admin.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid()"""
        )


@pytest.mark.parametrize("way", WAYS)
async def test_a_killed_connection_costs_no_more_than_one_answer(db: Database, database_url: str, way: Way) -> None:
    await warm(db)
    await terminate_others(database_url)
    await recovers(db, way)


async def test_a_connection_that_is_killed_at_work_says_that_nothing_was_decided(
    db: Database, database_url: str
) -> None:
    await run_on(database_url, SLEEP)
    working = asyncio.create_task(db.call("test_sleep", {"s": 30}))
    async with asyncio.timeout(RECOVERY_S), connected(database_url) as admin:
        while not await admin.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await terminate_others(database_url)
    error = await fails(Code.DATABASE_UNAVAILABLE, working)
    assert error.retryable
    assert "nothing was decided" in str(error)
    await recovers(db, call)


async def test_a_transaction_whose_connection_is_killed_is_rolled_back(db: Database, database_url: str) -> None:
    async def killed_half_way() -> None:
        async with db.transaction() as tx:
            await tx.execute(sa.text("UPDATE event_head SET seq = 77"))
            await terminate_others(database_url)
            await tx.execute(sa.text("UPDATE event_head SET seq = 78"))

    await fails(Code.DATABASE_UNAVAILABLE, killed_half_way())
    await recovers(db, transaction)
    async with db.snapshot() as tx:
        assert (await tx.execute(sa.text("SELECT seq FROM event_head"))).scalar_one() == 0


async def test_a_statement_that_takes_too_long_is_given_up(db: Database, database_url: str) -> None:
    await run_on(database_url, SLEEP)
    await fails(Code.DATABASE_UNAVAILABLE, db.call("test_sleep", {"s": 30}))

    async def slow_read() -> None:
        async with db.snapshot() as tx:
            await tx.execute(sa.text("SELECT pg_sleep(30)"))

    await fails(Code.DATABASE_UNAVAILABLE, slow_read())
    for way in WAYS:
        assert await way(db) is not None
    async with connected(database_url) as admin:  # and it does not go on in the server
        assert await admin.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 0


async def test_an_external_server_that_stands_still_or_dies_is_unavailable_in_time_and_then_back(
    external_postgres: ExternalPostgres,
) -> None:
    """One Database object lives through all of it: both with open connections, and with none."""
    await schema.migrate_apart(external_postgres.url)
    db, cold = Database(external_postgres.url), Database(external_postgres.url)
    try:
        await warm(db)
        external_postgres.pause()
        failures = [
            fails(Code.DATABASE_UNAVAILABLE, way(each)) for each in (db, cold) for way in WAYS for _ in range(2)
        ]
        await asyncio.gather(*failures)
        external_postgres.resume()
        await asyncio.gather(*(recovers(each, way) for each in (db, cold) for way in WAYS))

        await external_postgres.kill()
        await asyncio.gather(*(fails(Code.DATABASE_UNAVAILABLE, way(db)) for way in WAYS for _ in range(4)))
        await external_postgres.start()
        await asyncio.gather(*(recovers(db, way) for way in WAYS))
    finally:
        await db.close()
        await cold.close()


async def test_a_pause_in_the_middle_of_a_transaction_ends_it(external_postgres: ExternalPostgres) -> None:
    await schema.migrate_apart(external_postgres.url)
    db = Database(external_postgres.url)

    async def paused_half_way() -> None:
        async with db.transaction() as tx:
            await tx.execute(sa.text("UPDATE event_head SET seq = 77"))
            external_postgres.pause()
            await tx.execute(sa.text("UPDATE event_head SET seq = 78"))

    try:
        await fails(Code.DATABASE_UNAVAILABLE, paused_half_way())
        external_postgres.resume()
        await recovers(db, transaction)
        async with db.snapshot() as tx:
            assert (await tx.execute(sa.text("SELECT seq FROM event_head"))).scalar_one() == 0
    finally:
        await db.close()


async def test_a_server_that_takes_no_writes_still_answers_reads(
    db: Database, database_url: str, postgres: str, identities: Identities
) -> None:
    life = Life(db, identities, await a_fabric(db, identities))
    await life.claim("before")
    name = database_url.rpartition("/")[2].partition("?")[0]
    await run_on(postgres, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await terminate_others(database_url)
    await recovers(db, call)
    for write in (life.claim("after"), life.release("before"), life.run("UPDATE event_head SET seq = 1")):
        error = await fails(Code.READ_ONLY, write)
        assert error.retryable
    assert (await life.get("before")).key == "before"
    await run_on(postgres, f"ALTER DATABASE {name} RESET ALL")
    await terminate_others(database_url)
    await recovers(db, snapshot)
    assert (await life.ask("after")).created


async def test_a_lock_that_is_not_given_up_is_overload(db: Database, database_url: str, identities: Identities) -> None:
    life = Life(db, identities, await a_fabric(db, identities))
    await life.claim("wanted")
    async with connected(database_url) as other, other.transaction():
        await other.execute("SELECT FROM allocation_key FOR UPDATE")
        error = await fails(Code.OVERLOADED, life.release("wanted"))
        assert error.retryable
    assert await life.release("wanted") is None


async def test_a_deadlock_is_tried_again(db: Database, database_url: str) -> None:
    async with connected(database_url) as admin:
        await admin.execute("CREATE TABLE two (n int PRIMARY KEY, writes int); INSERT INTO two VALUES (1, 0), (2, 0)")
        await admin.execute("CREATE SEQUENCE tries")
        await admin.execute(
            """CREATE FUNCTION test_cross(arg jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM nextval('tries');
                 SET LOCAL deadlock_timeout = '50ms';
                 UPDATE two SET writes = writes + 1 WHERE n = (arg->>'first')::int;
                 PERFORM pg_sleep(0.2);
                 UPDATE two SET writes = writes + 1 WHERE n = 3 - (arg->>'first')::int;
                 RETURN '"crossed"';
               END $$"""
        )
        answers = await asyncio.gather(*(db.call("test_cross", {"first": n}) for n in (1, 2)))
        assert answers == ["crossed"] * 2
        assert [row["writes"] for row in await admin.fetch("SELECT writes FROM two")] == [2, 2]
        assert await admin.fetchval("SELECT last_value FROM tries") > 2  # one of them came twice


async def test_tries_have_an_end(db: Database, database_url: str) -> None:
    async with connected(database_url) as admin:
        await admin.execute("CREATE SEQUENCE tries")
        await admin.execute(
            """CREATE FUNCTION test_unlucky(arg jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM nextval('tries');
                 RAISE EXCEPTION 'again' USING ERRCODE = 'serialization_failure';
               END $$"""
        )
        await fails(Code.OVERLOADED, db.call("test_unlucky", {}))
        assert await admin.fetchval("SELECT last_value FROM tries") == RETRIES_MAX


async def test_too_few_connections_are_said_in_time(db: Database, database_url: str) -> None:
    await run_on(database_url, SLEEP)
    narrow = Database(database_url, connections_max=1)
    try:
        holding = asyncio.create_task(narrow.call("test_sleep", {"s": 1}))
        others = [asyncio.create_task(call(narrow)) for _ in range(3)]
        assert await holding == "slept"
        assert await asyncio.gather(*others) == [[]] * 3
    finally:
        await narrow.close()


async def test_a_mistake_of_ours_is_not_dressed_up(db: Database) -> None:
    with pytest.raises(asyncpg.PostgresSyntaxError):
        await db.call("not a function", {})
    with pytest.raises(sa.exc.ProgrammingError):
        async with db.transaction() as tx:
            await tx.execute(sa.text("SELECT no FROM sense WHERE"))
    with pytest.raises(sa.exc.IntegrityError):
        async with db.transaction() as tx:
            await tx.execute(sa.text("UPDATE event_head SET singleton = false"))


async def test_a_database_without_our_schema_says_what_to_do(db: Database, database_url: str) -> None:
    await asyncio.to_thread(schema.migrate, database_url, revision="base")
    for way in (call(db), read_rows(db)):
        error = await fails(Code.DATABASE_UNAVAILABLE, way)
        assert "fabric-manager migrate" in str(error)


async def read_rows(db: Database) -> Any:
    async with db.snapshot() as tx:
        await tx.execute(sa.text("SELECT * FROM allocation"))


async def test_a_lost_epoch_has_an_error_of_its_own(db: Database, identities: Identities) -> None:
    owned = await a_fabric(db, identities)
    stale = {**owned.guard, "epoch": owned.epoch + 1, "state": "up", "reason": None, "ctx": verbs.context(ACTOR)}
    with pytest.raises(EpochLostError):
        await db.call("set_fabric_state", stale)


async def test_text_that_postgres_cannot_hold_is_no_crash(db: Database, identities: Identities) -> None:
    life = Life(db, identities, await a_fabric(db, identities))
    with pytest.raises(asyncpg.PostgresError):  # the edge refuses it before; here it must only not hang or leak
        await life.claim("nul", labels={"a": "\x00"})
    assert (await life.ask("next")).created
