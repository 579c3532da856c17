"""`fabric-manager demo`, as a newcomer meets it."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.services import environment_without_settings

LAST_LINE = "the next start finds it as it was"
TOLD_S = 60.0


class Demo:
    def __init__(self, data_dir: Path) -> None:
        command = [sys.executable, "-m", "fabric_manager", "demo", "--port", "0", "--data-dir", str(data_dir)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=data_dir.parent,
            env=environment_without_settings(),
            start_new_session=True,
        )

    def told(self) -> str:
        """All it says until it serves."""
        assert self.process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda out: [lines.put(line) for line in out], args=(self.process.stdout,)).start()
        said, ends = "", time.monotonic() + TOLD_S
        while LAST_LINE not in said:
            said += lines.get(timeout=max(0.1, ends - time.monotonic()))
        return said

    def interrupt(self) -> int:
        """Ctrl-C reaches the whole group, as from a terminal."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(timeout=20)


def processes_naming(directory: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line:
            found.append(line)
    return found


def test_the_demo_brings_the_guides_claim_online_and_a_second_start_finds_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    first = Demo(data_dir)
    told = first.told()
    assert "phase online" in told
    for chapter in ("allocation.reserved", "Bind vPPB", "allocation.bound", "allocation.online", "/docs"):
        assert chapter in told
    assert first.interrupt() == 0
    assert processes_naming(data_dir) == []

    second = Demo(data_dir)
    assert "everything is as it was" in second.told()
    assert second.interrupt() == 0
    assert processes_naming(data_dir) == []
