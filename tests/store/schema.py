"""The schema as pg_dump writes it. `python -m tests.store.schema` prints what belongs in migrations/schema.sql."""

import asyncio
import logging
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from fabric_manager.store.embedded import EmbeddedPostgres, find_binaries
from fabric_manager.store.embedded.quarters import child_environment
from fabric_manager.store.schema import migrate_apart

DUMP_TIMEOUT_S = 30
HEADER = "-- What the migrations make, dumped by PostgreSQL {major}. Written by `make schema`; a test compares.\n"

# What differs from run to run or from one minor version to the next, and says nothing of the schema.
NOISE = re.compile(r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)\n", re.MULTILINE)


def dump(url: str, *without: str) -> str:
    """Every object of the database at `url`, except the tables that match `without`; alembic's own never."""
    options = [f"--exclude-table={pattern}" for pattern in ("alembic_version", *without)]
    said = subprocess.run(
        [find_binaries().directory / "pg_dump", "--schema-only", "--no-owner", "--no-privileges", *options, url],
        env=child_environment(os.environ),
        capture_output=True,
        text=True,
        check=True,
        timeout=DUMP_TIMEOUT_S,
    ).stdout
    return re.sub(r"\n{2,}", "\n\n", NOISE.sub("", said)).strip() + "\n"


def schema_file(url: str) -> str:
    return HEADER.format(major=find_binaries().major) + "\n" + dump(url)


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fm-schema-") as directory:
        postgres = EmbeddedPostgres(data_dir=Path(directory), log=logging.getLogger("postgres"), durable=False)
        async with postgres:
            await migrate_apart(postgres.url)
            sys.stdout.write(await asyncio.to_thread(schema_file, postgres.url))


if __name__ == "__main__":
    asyncio.run(main())
