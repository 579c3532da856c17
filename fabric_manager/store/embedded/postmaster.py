"""One run of the server process, ours by birth or by adoption."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from logging import Logger
from pathlib import Path

from fabric_manager.store.embedded.processes import pids_in, wait_until_gone, works_in
from fabric_manager.store.embedded.quarters import Quarters, child_environment

# PostgreSQL's three ways to end: sessions are cut and all is written; no time for that; nothing left to ask.
STOP_STEPS = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
ADOPTED_POLL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmaster:
    """`process` is None for an adopted server: it is no child of ours, so it is watched by looking."""

    pid: int
    pgdata: Path
    process: asyncio.subprocess.Process | None = None

    @property
    def alive(self) -> bool:
        return works_in(self.pid, self.pgdata) if self.process is None else self.process.returncode is None

    async def wait(self) -> None:
        if self.process is None:
            await wait_until_gone(self.pid, self.pgdata, poll_s=ADOPTED_POLL_S)
        else:
            await self.process.wait()

    async def stop(self, log: Logger) -> None:
        for number, patience_s in STOP_STEPS:
            if not self.alive:
                return
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
            try:
                async with asyncio.timeout(patience_s):
                    await self.wait()
            except TimeoutError:
                log.warning("postgres is slow to stop", extra={"pid": self.pid, "signal": number.name})


async def launch(quarters: Quarters, arguments: Sequence[str], *, log_file: Path) -> Postmaster:
    """Must be called on the thread that lives as long as the service: the death signal follows that thread."""
    log_fd = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            # A fast stop, as ours: the next start need not recover.
            *quarters.command(quarters.binaries.postgres, *arguments, death_signal=signal.SIGINT),
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            env=child_environment(os.environ),
            start_new_session=True,  # Ctrl-C in a terminal reaches the service alone, which stops the server last
        )
    finally:
        os.close(log_fd)
    return Postmaster(pid=process.pid, pgdata=quarters.pgdata, process=process)


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A server of an earlier service: as postmaster.pid describes it."""

    postmaster: Postmaster
    socket_dir: Path


def find_earlier(pgdata: Path) -> Earlier | None:
    """The live server of `pgdata`, if there is one.

    A postmaster.pid whose pid now belongs to somebody else is removed, because postgres would refuse to start over
    it; not while any process still works in PGDATA.
    """
    file = pgdata / "postmaster.pid"
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].lstrip("-").isdigit():
        return None  # cut off while it was written: postgres itself knows what to do
    pid = abs(int(lines[0]))
    if works_in(pid, pgdata):
        socket_dir = Path(lines[4]) if len(lines) > 4 and lines[4] else pgdata
        return Earlier(postmaster=Postmaster(pid=pid, pgdata=pgdata), socket_dir=socket_dir)
    if _exists(pid) and not pids_in(pgdata):
        file.unlink()
    return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
