"""The real service as a process of its own, and a caller that speaks plain HTTP to it."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "rack.yaml"
READY_S = 60.0
QUICK = {
    "FABRIC_MANAGER_OWNERSHIP_TTL_S": "2",
    "FABRIC_MANAGER_OWNERSHIP_RENEW_S": "0.2",
    "FABRIC_MANAGER_SCAN_S": "0.5",
    "FABRIC_MANAGER_POLL_S": "0.05",
}


class Service:
    """`fabric-manager serve` on a free port. Started again on the same directory it finds what was there."""

    def __init__(
        self, data_dir: Path, *, topology: Path | None = EXAMPLE, python: str = sys.executable, **environment: str
    ) -> None:
        self.data_dir = data_dir
        self.topology = topology
        self.python = python
        self.environment = QUICK | environment
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def launch(self) -> None:
        """Start it without waiting."""
        command = [self.python, "-m", "fabric_manager", "serve", "--port", "0", "--data-dir", str(self.data_dir)]
        if self.topology is not None:
            command += ["--topology", str(self.topology)]
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with (self.data_dir / "service.log").open("a") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.data_dir,
                env=environment_without_settings() | self.environment,
                start_new_session=True,
            )

    def wait_ready(self, deadline_s: float = READY_S) -> None:
        """Return once the ready line was printed."""
        assert self.process is not None
        assert self.process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda out: [lines.put(line) for line in out], args=(self.process.stdout,)).start()
        ends = time.monotonic() + deadline_s
        while True:
            try:
                line = lines.get(timeout=0.1)
            except queue.Empty:
                assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log_tail()}"
                assert time.monotonic() < ends, f"not ready after {deadline_s} s: {self.log_tail()}"
                continue
            if found := re.search(r"ready at (http://\S+)", line):
                self.url = found[1]
                return

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        """SIGKILL: the rack goes on, the embedded database follows its parent."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, as a supervisor would; it has to end by itself."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=20)

    @property
    def token(self) -> str:
        return (self.data_dir / "admin.token").read_text().strip()

    def log_tail(self) -> str:
        return (self.data_dir / "service.log").read_text()[-2000:]

    @contextmanager
    def caller(self, **options: Any) -> Iterator["Caller"]:
        headers = {"Authorization": f"Bearer {self.token}"}
        with httpx.Client(base_url=f"{self.url}/v1", headers=headers, timeout=40, **options) as http:
            yield Caller(http)


class Caller:
    """Says what it expects: an answer with another status fails with the whole answer."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def ask(self, method: str, path: str, *, expect: int | tuple[int, ...] = 200, **options: Any) -> Any:
        answer = self.http.request(method, path, **options)
        expected = (expect,) if isinstance(expect, int) else expect
        assert answer.status_code in expected, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def get(self, path: str, **options: Any) -> Any:
        return self.ask("GET", path, **options)

    def put(self, key: str, wish: Mapping[str, Any], *, wait_s: int = 0, **options: Any) -> Any:
        headers = {"Prefer": f"wait={wait_s}"} if wait_s else {}
        expect = options.pop("expect", (200, 201))
        return self.ask("PUT", f"/allocations/{key}", json=dict(wish), headers=headers, expect=expect, **options)

    def report(self, allocation: Mapping[str, Any], phase: str, *, boot_id: str = "boot-1", **options: Any) -> Any:
        body = {"boot_id": boot_id, "segments": [{"id": s["id"], "phase": phase} for s in allocation["segments"]]}
        return self.ask("POST", f"/allocations/{allocation['key']}/node-state", json=body, **options)

    def delete(self, key: str) -> Any:
        return self.ask("DELETE", f"/allocations/{key}", expect=(202, 204))

    def reaches(self, key: str, *phases: str, deadline_s: float = 30.0) -> Any:
        """The allocation once it is in one of `phases`."""
        ends = time.monotonic() + deadline_s
        while True:
            found = self.get(f"/allocations/{key}?wait=1&" + "&".join(f"phase={phase}" for phase in phases))
            if found["phase"] in phases:
                return found
            assert time.monotonic() < ends, f"not {phases} after {deadline_s} s but {found}"

    def violations(self) -> Any:
        return self.get("/invariants")["violations"]


def environment_without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("FABRIC_MANAGER_")}
