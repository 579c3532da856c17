"""Two `serve` on one data directory is a clear error."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fabric_manager.store.embedded import DataDirectoryInUseError, DataDirectoryLock, LauncherError

HOLD = """
import sys
from pathlib import Path
from fabric_manager.store.embedded import DataDirectoryLock
with DataDirectoryLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold_elsewhere(data_dir: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, data_dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_the_second_holder_is_told_who_the_first_is(tmp_path: Path) -> None:
    with hold_elsewhere(tmp_path) as holder:
        with pytest.raises(DataDirectoryInUseError) as refused:
            DataDirectoryLock(tmp_path).acquire()
        assert str(holder.pid) in str(refused.value)
        assert str(tmp_path) in str(refused.value)
        holder.communicate("")


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with hold_elsewhere(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=10)
    with DataDirectoryLock(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_two_locks_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    with DataDirectoryLock(tmp_path), pytest.raises(DataDirectoryInUseError, match=str(os.getpid())):
        DataDirectoryLock(tmp_path).acquire()
    with DataDirectoryLock(tmp_path):
        pass


def test_a_refused_lock_leaves_the_holders_pid_in_place(tmp_path: Path) -> None:
    with DataDirectoryLock(tmp_path):
        for _ in range(2):
            with pytest.raises(DataDirectoryInUseError, match=str(os.getpid())):
                DataDirectoryLock(tmp_path).acquire()


def test_the_directory_is_made_private_and_an_existing_one_is_left_as_it_is(tmp_path: Path) -> None:
    with DataDirectoryLock(tmp_path / "new"):
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    with DataDirectoryLock(shared):
        assert shared.stat().st_mode & 0o777 == 0o755


def test_a_path_that_cannot_be_a_directory_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LauncherError, match="cannot use"):
        DataDirectoryLock(tmp_path / "file").acquire()
