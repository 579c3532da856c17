"""Which schema this release needs, and the way there."""

import asyncio
from importlib.resources import files
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.util import await_only

from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.store.database import Database, explained

SCHEMA_REVISION = "0001"


def migrations_directory() -> Path:
    """`migrations/` travels inside the wheel, and lies beside the package in a checkout."""
    package = Path(str(files("fabric_manager")))
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parent / "migrations"


def migrate(url: str, *, revision: str = "head") -> None:
    """Bring the database at `url` to `revision`. Blocking; waits for another migration that runs. Idempotent.

    Raises FabricError; then the database is as before.
    """
    # Half a second of imports, needed only when the schema differs.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.attributes["url"] = url
    try:
        with explained():
            if revision == "base" or revision.startswith("-"):
                command.downgrade(config, revision)
            else:
                command.upgrade(config, revision)
    except FabricError as error:
        if error.code is not Code.OVERLOADED:
            raise
        raise FabricError(
            Code.OVERLOADED,
            "the migration gave up, and changed nothing: another session holds a lock on a table that it changes. "
            "End the long transaction (pg_stat_activity shows it), then migrate again",
            retry_after_ms=5000,
        ) from error


async def revision(db: Database) -> str | None:
    """The schema the database has; None when it has none. Raises FabricError when it does not answer."""
    async with db.snapshot() as tx:
        if (await tx.execute(sa.text("SELECT to_regclass('alembic_version')"))).scalar() is None:
            return None
        found: str | None = (await tx.execute(sa.text("SELECT version_num FROM alembic_version"))).scalar()
        return found


async def migrate_apart(url: str) -> None:
    """`migrate` beside a running event loop."""
    await asyncio.to_thread(migrate, url)


def run_script(op: Any, script: str) -> None:
    """Run several statements in the migration's transaction; a prepared statement could hold only one."""
    connection = op.get_bind()
    connection.execute(sa.text("SELECT 1"))  # opens the transaction that the raw connection then shares
    await_only(connection.connection.driver_connection.execute(script))


def install_functions(op: Any) -> None:
    """Create or replace every database function and trigger of this release."""
    for script in sorted(files("fabric_manager.store").joinpath("sql").iterdir(), key=lambda entry: entry.name):
        if script.name.endswith(".sql"):
            run_script(op, "SET LOCAL check_function_bodies = off;\n" + script.read_text())


def drop_everything(op: Any) -> None:
    """Leave nothing of ours but alembic's own table."""
    run_script(
        op,
        """
        DO $$
        DECLARE name text;
        BEGIN
          FOR name IN SELECT format('TABLE %I', tablename) FROM pg_tables
                      WHERE schemaname = current_schema() AND tablename <> 'alembic_version' LOOP
            EXECUTE 'DROP ' || replace(name, 'TABLE ', 'TABLE IF EXISTS ') || ' CASCADE';
          END LOOP;
          FOR name IN SELECT format('%s', p.oid::regprocedure) FROM pg_proc p
                      JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = current_schema()
                      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e') LOOP
            EXECUTE 'DROP FUNCTION IF EXISTS ' || name || ' CASCADE';
          END LOOP;
        END $$;
        """,
    )
