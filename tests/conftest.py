"""One real PostgreSQL for the whole run; a fresh, migrated database for each test that asks for one."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import asyncpg
import pytest
import uuid_utils.compat

from fabric_manager.store.database import Database
from fabric_manager.store.embedded import EmbeddedPostgres
from fabric_manager.store.schema import migrate_apart

TEMPLATE = "fabric_template"


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@pytest.fixture(scope="session")
def identities() -> Callable[[], UUID]:
    return uuid_utils.compat.uuid7


@pytest.fixture(scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The server's URL. Not durable: tests kill services, not this machine."""
    data_dir: Path = tmp_path_factory.mktemp("postgres")
    async with EmbeddedPostgres(data_dir=data_dir, log=logging.getLogger("postgres"), durable=False) as server:
        await run_on(server.url, f"CREATE DATABASE {TEMPLATE}")
        await migrate_apart(with_database(server.url, TEMPLATE))
        yield server.url


@pytest.fixture(scope="session")
def new_empty_database(postgres: str) -> Callable[[], Awaitable[str]]:
    """Makes a database without a schema and answers its URL."""

    async def make() -> str:
        name = f"empty_{uuid4().hex}"
        await run_on(postgres, f"CREATE DATABASE {name}")
        return with_database(postgres, name)

    return make


@pytest.fixture(scope="session")
def new_database(postgres: str) -> Callable[[], Awaitable[str]]:
    """Makes a migrated database and answers its URL."""

    async def make() -> str:
        name = f"test_{uuid4().hex}"
        await run_on(postgres, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        return with_database(postgres, name)

    return make


@pytest.fixture
async def database_url(new_database: Callable[[], Awaitable[str]]) -> str:
    return await new_database()


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


async def run_on(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
