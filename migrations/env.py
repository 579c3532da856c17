"""Runs migrations one process at a time, and gives up early rather than queue behind a long transaction."""

import asyncio

from alembic import context
from sqlalchemy import Connection, text

from fabric_manager.store.database import plain_engine

LOCK_TIMEOUT = "2s"  # a migration that waits for a lock makes everybody behind it wait too
MIGRATION_LOCK = 7_310_582_311  # any constant; the same in every release


def migrate(connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": MIGRATION_LOCK})
    connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.commit()
    context.configure(connection=connection, transactional_ddl=True, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


async def run() -> None:
    engine = plain_engine(context.config.attributes["url"])
    try:
        async with engine.connect() as connection:
            await connection.run_sync(migrate)  # the advisory lock ends with the connection
            await connection.commit()
    finally:
        await engine.dispose()


asyncio.run(run())
