"""One `serve` per data directory."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from fabric_manager.store.embedded.errors import DataDirectoryInUseError, LauncherError


class DataDirectoryLock:
    """Taken before anything else in the directory is read; the kernel drops it with the process, however that ends."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._fd: int | None = None

    def acquire(self) -> None:
        """Make the directory (0700) when it is absent, and hold it. Never waits.

        Raises DataDirectoryInUseError, also for a second lock in this process; LauncherError when it cannot be made.
        """
        assert self._fd is None, "acquired twice"
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LauncherError(f"cannot use {self._data_dir} as data directory: {error.strerror}") from error
        try:
            self._hold(fd)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def _hold(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            written = os.pread(fd, 32, 0).strip()
            pid = int(written) if written.isdigit() else None
            raise DataDirectoryInUseError(data_dir=self._data_dir, pid=pid) from None
        except OSError as error:
            raise LauncherError(
                f"{self._data_dir} is on a file system without locks ({error.strerror}): choose a local one"
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next one in. The file stays: removing it would let two processes lock two files of one name."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()
