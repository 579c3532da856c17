"""State that outlives the rack's process: a log of changed keys, rewritten when it has grown.

A change is one line, written before its command is answered, so a killed process loses nothing it answered for. The
kernel holds written pages, so there is no fsync: this survives SIGKILL, not a power cut, and a simulator need not.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson

LOCK_ATTEMPTS_MAX = 10
LOCK_PAUSE_S = 0.02
LINES_MAX = 20_000  # then the log is rewritten with one line that holds everything


class StateDirectoryInUseError(Exception):
    """Another rack runs on this directory."""


class Keeping:
    """Holds the directory's lock for as long as it is open."""

    def __init__(self, state_dir: Path) -> None:
        """Raises StateDirectoryInUseError."""
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock_patiently(state_dir)
        self._path = state_dir / "state.jsonl"
        self._values: dict[str, bytes] = {}  # encoded, to tell what really changed
        for line in self._path.read_bytes().splitlines() if self._path.exists() else ():
            self._take(line)
        self._log = self._rewritten()

    def values(self) -> Mapping[str, Any]:
        return {key: orjson.loads(value) for key, value in self._values.items()}

    def save(self, changes: Iterable[tuple[str, Any]]) -> None:
        """Keep the new value of each key, None deleting it, all of them or none."""
        line: dict[str, Any] = {}
        for key, value in changes:
            encoded = orjson.dumps(value) if value is not None else None
            if encoded != self._values.get(key):
                line[key] = value
                self._put(key, encoded)
        if line:
            self._log.write(orjson.dumps(line) + b"\n")
            self._lines += 1
        if self._lines > LINES_MAX:
            self._log.close()
            self._log = self._rewritten()

    def clear(self) -> None:
        self._values.clear()
        self._log.close()
        self._log = self._rewritten()

    def close(self) -> None:
        self._log.close()
        os.close(self._lock)

    def _take(self, line: bytes) -> None:
        try:
            for key, value in orjson.loads(line).items():
                self._put(key, orjson.dumps(value) if value is not None else None)
        except orjson.JSONDecodeError:
            return  # torn by a kill in the middle of the last write; its command was never answered

    def _put(self, key: str, encoded: bytes | None) -> None:
        if encoded is None:
            self._values.pop(key, None)
        else:
            self._values[key] = encoded

    def _rewritten(self) -> BinaryIO:
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(orjson.dumps(self.values()) + b"\n")
        fresh.chmod(0o600)
        fresh.replace(self._path)
        self._lines = 1
        return self._path.open("ab", buffering=0)


def is_held(state_dir: Path) -> bool:
    """Whether a process holds the directory's lock: the sign of life that neither a zombie nor a reused pid gives."""
    try:
        os.close(_lock(state_dir))
    except StateDirectoryInUseError:
        return True
    except FileNotFoundError:
        return False
    return False


def _lock_patiently(state_dir: Path) -> int:
    """`is_held` holds the lock for an instant, which must not turn a starting rack away."""
    for _ in range(LOCK_ATTEMPTS_MAX - 1):
        with contextlib.suppress(StateDirectoryInUseError):
            return _lock(state_dir)
        time.sleep(LOCK_PAUSE_S)
    return _lock(state_dir)


def _lock(state_dir: Path) -> int:
    descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StateDirectoryInUseError(f"{state_dir}: another simulated rack runs on it") from error
    return descriptor
