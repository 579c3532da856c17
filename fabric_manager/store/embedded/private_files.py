"""Files and directories that nobody else may read."""

import hashlib
import os
import re
import secrets
import shutil
import stat
from pathlib import Path

from fabric_manager.store.embedded.errors import LauncherError

SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_BYTES_MAX = 103  # sun_path holds 107 on Linux, 103 on macOS


def directory_key(data_dir: Path) -> str:
    return hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]


def socket_directory(data_dir: Path, *, uid: int, xdg_runtime_dir: str | None) -> Path:
    """The same short path at each start. `uid` is the server's: two accounts never share one directory."""
    name = f"fm-{uid}-{directory_key(data_dir)}"
    if xdg_runtime_dir is not None:
        inside = Path(xdg_runtime_dir) / name
        if _plain_and_short(inside) and _ours(inside.parent, uid):
            return inside
    return Path("/tmp") / name  # noqa: S108 — make_private_directory refuses what somebody else made


def _plain_and_short(directory: Path) -> bool:
    """unix_socket_directories is a list with quoting rules of its own; a plain path needs none of them."""
    path = str(directory / SOCKET_NAME)
    return re.fullmatch(r"/[\w./-]+", path, re.ASCII) is not None and len(path) <= SOCKET_PATH_BYTES_MAX


def _ours(directory: Path, uid: int) -> bool:
    try:
        return directory.stat().st_uid == uid == os.geteuid()
    except OSError:
        return False


def make_private_directory(directory: Path, *, uid: int, gid: int) -> None:
    """Make it, or prove that an existing one is `uid`'s own and 0700. Raises LauncherError."""
    try:
        directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700)
        if uid != os.geteuid():
            os.chown(directory, uid, gid)
    except FileExistsError:
        pass
    facts = directory.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != uid or stat.S_IMODE(facts.st_mode) != 0o700:
        raise LauncherError(
            f"{directory} must be a directory of uid {uid} with mode 0700, and is not: remove it, then start again"
        )


def remove_runtime_directory(directory: Path) -> None:
    """Postgres takes its socket away when it stops; a socket without a server would only mislead."""
    shutil.rmtree(directory, ignore_errors=True)


def write_private(file: Path, text: str) -> None:
    """Whole or not at all, also through a power cut; 0600 before the first byte is in it."""
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(fd)
    fresh.rename(file)
    sync_directory(file.parent)


def sync_directory(directory: Path) -> None:
    """A rename survives a power cut only once its directory is on disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
