"""Which processes still work in a PGDATA: postgres, and each child of it, makes PGDATA its working directory."""

import asyncio
import os
import subprocess
from pathlib import Path

POLL_S = 0.05


def pids_in(pgdata: Path) -> frozenset[int]:
    """Every live process there that this one may look at. Empty where there is no /proc (macOS)."""
    return frozenset(pid for pid in _all_pids() if works_in(pid, pgdata))


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []


def works_in(pid: int, pgdata: Path) -> bool:
    """Whether `pid` is alive, no zombie, and a postgres of `pgdata`. A pid alone proves nothing: they are reused."""
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", pgdata)
    except PermissionError:  # another account's process, in a container without CAP_SYS_PTRACE
        return os.fsencode(pgdata) in _read(f"/proc/{pid}/cmdline").split(b"\0")
    except OSError:
        return not os.path.isdir("/proc/self") and _named_by_ps(pid, pgdata)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _named_by_ps(pid: int, pgdata: Path) -> bool:
    said = subprocess.run(  # noqa: S603 — a number and fixed words, no shell
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return "postgres" in said and str(pgdata) in said


async def wait_until_gone(pid: int, pgdata: Path, *, poll_s: float = POLL_S) -> None:
    """For a process that is not our child. Bounded by the caller's own time-out."""
    while works_in(pid, pgdata):  # noqa: ASYNC110 — the kernel sets no Event
        await asyncio.sleep(poll_s)


async def wait_until_empty(pgdata: Path, *, timeout_s: float) -> None:
    """Leftovers of a killed server end by themselves, soon. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while pids_in(pgdata):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
