"""The files of the database: made whole or not at all."""

import asyncio
import os
import secrets
import shutil
from pathlib import Path

from fabric_manager.store.embedded.errors import LauncherError
from fabric_manager.store.embedded.private_files import sync_directory, write_private
from fabric_manager.store.embedded.processes import wait_until_empty
from fabric_manager.store.embedded.quarters import Mode, Quarters

SUPERUSER = "fabric_manager"
WAL_SEGMENT_MIB = 4
INITDB_TIMEOUT_S = 120
LEFTOVERS_TIMEOUT_S = 10


async def ensure_cluster(quarters: Quarters, *, data_dir: Path, durable: bool) -> str:
    """Make PGDATA when it is absent, check it when it is there; the superuser's password either way.

    Raises LauncherError.
    """
    password_file = data_dir / "postgres.password"
    pgdata = quarters.pgdata
    if await asyncio.to_thread(_is_made, quarters):
        _remember_home(quarters, data_dir)
        return _read_password(password_file, pgdata)
    if (data_dir / "postgres").is_symlink():
        raise LauncherError(f"{data_dir}/postgres points at {pgdata}, which is gone: restore it, or remove the link")
    password = secrets.token_urlsafe(32)
    write_private(password_file, password + "\n")
    await _make(quarters, password, durable=durable)
    _remember_home(quarters, data_dir)
    return password


def _is_made(quarters: Quarters) -> bool:
    """PGDATA appears by rename, so it is complete when it exists; only an empty directory counts as absent."""
    pgdata = quarters.pgdata
    if not pgdata.exists() or not any(pgdata.iterdir()):
        return False
    if pgdata.stat().st_uid != quarters.uid:
        raise LauncherError(f"{pgdata} belongs to uid {pgdata.stat().st_uid}: start as that user, or move it away")
    version = pgdata / "PG_VERSION"
    if not version.exists():
        raise LauncherError(f"{pgdata} is not a database of PostgreSQL: move it away, then start again")
    found = version.read_text().strip()
    if found != str(quarters.binaries.major):
        raise LauncherError(
            f"{pgdata} was made by PostgreSQL {found}, and {quarters.binaries.directory} holds "
            f"{quarters.binaries.major}: install {found}, or dump it there and load it into a new data directory"
        )
    return True


def _read_password(file: Path, pgdata: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        raise LauncherError(f"{file}, the password of {pgdata}, is unreadable ({error.strerror}): restore it") from None


async def _make(quarters: Quarters, password: str, *, durable: bool) -> None:
    """An initdb that was killed leaves only postgres.new, which the next one throws away."""
    fresh = quarters.home / "postgres.new"
    pwfile = quarters.home / "postgres.new.password"
    if fresh.exists():
        await wait_until_empty(fresh, timeout_s=LEFTOVERS_TIMEOUT_S)
        await asyncio.to_thread(shutil.rmtree, fresh)
    write_private(pwfile, password + "\n")
    try:
        if quarters.mode is Mode.NOBODY:
            os.chown(pwfile, quarters.uid, quarters.gid, follow_symlinks=False)
        status, said = await quarters.run(
            *(quarters.binaries.initdb, "-D", str(fresh), "-U", SUPERUSER, f"--pwfile={pwfile}"),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums"),
            *(f"--wal-segsize={WAL_SEGMENT_MIB}", "--no-instructions", *([] if durable else ["--no-sync"])),
            timeout_s=INITDB_TIMEOUT_S,
        )
    finally:
        pwfile.unlink()
    if status != 0:
        raise LauncherError(f"initdb could not make {fresh}: {said}")
    fresh.rename(quarters.pgdata)
    sync_directory(quarters.home)


def _remember_home(quarters: Quarters, data_dir: Path) -> None:
    """Where the server is `nobody`, <data_dir>/postgres leads to its data at the next start and for people."""
    link = data_dir / "postgres"
    if quarters.home != data_dir and not link.is_symlink():
        link.symlink_to(quarters.pgdata)
        sync_directory(data_dir)
