"""The way to the schema and back, on databases that are in use."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import asyncpg
import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.lifecycle import Phase
from fabric_manager.domain.units import GiB
from fabric_manager.store import schema, tables
from fabric_manager.store.database import Database, plain_engine
from fabric_manager.store.embedded import find_binaries
from fabric_manager.store.embedded.binaries import on_path
from tests.conftest import run_on
from tests.external_postgres import ExternalPostgres
from tests.racks import a_fabric
from tests.store.allocations import Life
from tests.store.schema import dump, schema_file

ROOT = Path(__file__).parents[2]
Identities = Callable[[], UUID]
PARTITIONS = "event_[0-9]*"


async def migrate_to(url: str, revision: str) -> None:
    await asyncio.to_thread(schema.migrate, url, revision=revision)


async def migrate_elsewhere(url: str) -> tuple[int | None, str]:
    """As another service does, in a process of its own: its exit status and complaints."""
    program = "import sys; from fabric_manager.store.schema import migrate; migrate(sys.argv[1])"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, url, stderr=asyncio.subprocess.PIPE, cwd=ROOT
    )
    _, said = await process.communicate()
    return process.returncode, said.decode()


def test_the_release_names_the_newest_revision() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.migrations_directory()))
    assert ScriptDirectory.from_config(config).get_heads() == [schema.SCHEMA_REVISION]


async def test_a_used_database_goes_down_to_nothing_and_up_again(
    database_url: str, db: Database, identities: Identities
) -> None:
    before = dump(database_url)
    life = Life(db, identities, await a_fabric(db, identities, dcds=1))
    await life.online("ld", pool="mlds")
    await life.online("dc", pool="dcds")
    await life.sequence()
    await db.close()
    await migrate_to(database_url, "base")
    assert dump(database_url) == "\n"
    assert await schema.revision(db) is None
    await migrate_to(database_url, "head")
    assert dump(database_url) == before
    assert await schema.revision(db) == schema.SCHEMA_REVISION
    life = Life(db, identities, await a_fabric(db, identities))
    assert (await life.bound("again")).phase is Phase.BOUND


async def test_two_services_that_migrate_at_once_are_harmless(
    new_database: Callable[[], Awaitable[str]], database_url: str
) -> None:
    fresh = await new_database()
    await migrate_to(fresh, "base")
    assert await asyncio.gather(*(migrate_elsewhere(fresh) for _ in range(3))) == [(0, "")] * 3
    assert dump(fresh) == dump(database_url)


async def test_a_migration_waits_for_the_one_that_runs(new_database: Callable[[], Awaitable[str]]) -> None:
    url = await new_database()
    first = await asyncpg.connect(url)
    await first.execute("SELECT pg_advisory_lock(7310582311)")
    second = asyncio.create_task(migrate_elsewhere(url))
    try:
        await waiting_for(url, "advisory")
        assert not second.done()
    finally:
        await first.close()
    assert await second == (0, "")


async def waiting_for(url: str, kind: str) -> None:
    """Until a session of this database waits for a lock of that kind."""
    watcher = await asyncpg.connect(url)
    question = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                  AND wait_event_type = 'Lock' AND wait_event = $1"""
    try:
        async with asyncio.timeout(20):
            while not await watcher.fetchval(question, kind):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.02)
    finally:
        await watcher.close()


async def test_a_migration_gives_up_rather_than_queue_behind_a_long_transaction(database_url: str) -> None:
    reader = await asyncpg.connect(database_url)
    try:
        async with reader.transaction():
            await reader.execute("LOCK TABLE allocation IN ACCESS SHARE MODE")
            began = time.monotonic()
            with pytest.raises(FabricError, match="End the long transaction") as gave_up:
                await migrate_to(database_url, "base")
            assert time.monotonic() - began < 6
            assert gave_up.value.code is Code.OVERLOADED
            assert await reader.fetchval("SELECT count(*) FROM allocation") == 0  # still there
    finally:
        await reader.close()
    await migrate_to(database_url, "base")


async def test_the_tables_of_the_code_are_those_of_the_migrations(
    new_database: Callable[[], Awaitable[str]], database_url: str
) -> None:
    url = await new_database()
    await migrate_to(url, "base")
    engine = plain_engine(url)

    def make(connection: sa.Connection) -> None:
        tables.metadata.create_all(connection)
        schema.install_functions(SimpleNamespace(get_bind=lambda: connection))

    async with engine.begin() as connection:
        await connection.run_sync(make)
    await engine.dispose()
    assert dump(url, PARTITIONS) == dump(database_url, PARTITIONS)


async def test_the_schema_file_is_what_the_migrations_make(database_url: str) -> None:
    written = (ROOT / "migrations" / "schema.sql").read_text()
    assert written == schema_file(database_url), "run `make schema`"


async def test_the_whole_schema_works_on_an_external_server(
    external_postgres: ExternalPostgres, identities: Identities
) -> None:
    assert external_postgres.binaries == (on_path() or find_binaries())
    await schema.migrate_apart(external_postgres.url)
    db = Database(external_postgres.url)
    try:
        life = Life(db, identities, await a_fabric(db, identities, dcds=1))
        claimed = await life.claim("plain", size_bytes=10 * GiB, pool="mlds")
        assert claimed.phase is Phase.RESERVED
        assert claimed.segments[0].size_bytes == 64 * GiB
        for key, pool in (("ld", "mlds"), ("dc", "dcds")):
            await life.online(key, pool=pool)
            await life.release(key)
            await life.report(key, "offline")
            await life.erased(key)
            assert (await life.get(key)).phase is Phase.RELEASED
        await life.sums_are_right()
    finally:
        await db.close()
    await migrate_to(external_postgres.url, "base")


async def test_an_extension_is_neither_needed_nor_dropped(new_database: Callable[[], Awaitable[str]]) -> None:
    url = await new_database()
    await run_on(url, "CREATE EXTENSION btree_gist")
    await migrate_to(url, "base")
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM pg_extension WHERE extname = 'btree_gist'") == 1
    finally:
        await connection.close()
    await migrate_to(url, "head")
