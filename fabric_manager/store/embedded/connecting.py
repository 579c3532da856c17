"""The first connection to a server that may still be starting, or ending."""

from pathlib import Path
from urllib.parse import quote, urlencode

import asyncpg

from fabric_manager.store.embedded.cluster import SUPERUSER
from fabric_manager.store.embedded.errors import LauncherError

DATABASE = "fabric_manager"
CONNECT_TIMEOUT_S = 3.0
CREATE_TIMEOUT_S = 60.0
NOT_YET = (
    asyncpg.CannotConnectNowError,  # starting up, shutting down, recovering
    asyncpg.AdminShutdownError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.InterfaceError,  # the connection went between two questions
    asyncpg.TooManyConnectionsError,
    OSError,  # no socket, nobody listens, cut off; TimeoutError is one of them
)


def database_url(*, socket_dir: Path, password: str, database: str = DATABASE) -> str:
    return f"postgresql://{SUPERUSER}:{quote(password, safe='')}@/{database}?{urlencode({'host': str(socket_dir)})}"


async def accepts(*, socket_dir: Path, password: str) -> bool:
    """Whether the server takes connections now; afterwards the database exists. Raises LauncherError."""
    url = database_url(socket_dir=socket_dir, password=password, database="postgres")
    try:
        connection = await asyncpg.connect(url, port=5432, timeout=CONNECT_TIMEOUT_S)
        try:
            if not await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f"CREATE DATABASE {DATABASE}", timeout=CREATE_TIMEOUT_S)
        finally:
            connection.terminate()
    except NOT_YET:
        return False
    except asyncpg.InvalidPasswordError as error:
        raise LauncherError(f"the server in {socket_dir} refuses what postgres.password holds: restore it") from error
    except asyncpg.PostgresError as error:
        raise LauncherError(f"the server in {socket_dir} is up and unusable: {error}") from error
    return True
