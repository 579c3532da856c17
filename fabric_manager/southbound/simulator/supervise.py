"""Starts the rack's process, or takes over one that a service before us left running."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fabric_manager.southbound.simulator.control import RackControl, RackControlError
from fabric_manager.southbound.simulator.keeping import is_held
from fabric_manager.southbound.simulator.wire import NotConnectedError, read_endpoint

READY_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0
PING_TIMEOUT_S = 2.0
POLL_S = 0.02
LOG_TAIL_BYTES = 2000


class RackStartError(Exception):
    """The rack did not come up, or holds its directory without answering."""


class RackProcess:
    """A running rack, ours or adopted. It outlives this object unless `stop` is called."""

    def __init__(self, *, state_dir: Path, pid: int, child: subprocess.Popen[bytes] | None) -> None:
        self.state_dir = state_dir
        self.pid = pid
        self._child = child

    @property
    def endpoint(self) -> str:
        return f"simulator:{self.state_dir.absolute()}"  # the same to a process in another directory

    @property
    def adopted(self) -> bool:
        return self._child is None

    def is_running(self) -> bool:
        self._reap()
        return is_held(self.state_dir)

    async def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM, and after `timeout_s` SIGKILL. Returns when it is gone, also when it was gone before."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.is_running() or (await self._signal(number) and await self._gone(timeout_s=timeout_s)):
                break
        self._reap()

    async def kill(self) -> None:
        """SIGKILL: what a crash does. Kept state is as of the last answer."""
        if await self._signal(signal.SIGKILL):
            await self._gone(timeout_s=STOP_TIMEOUT_S)
        self._reap()

    async def _signal(self, number: signal.Signals) -> bool:
        """Whether it was sent. A pid that another program got meanwhile is never signalled."""
        if self._child is not None:
            if self._child.poll() is None:
                self._child.send_signal(number)
                return True
            return False
        with contextlib.ExitStack() as stack:
            try:
                handle = os.pidfd_open(self.pid)
            except ProcessLookupError:
                return False
            stack.callback(os.close, handle)
            # The handle names one process for good; that it is the rack is checked while we hold it.
            if not is_held(self.state_dir) or not await self._is_ours(hung=number is signal.SIGKILL):
                return False
            signal.pidfd_send_signal(handle, number)
        return True

    async def _is_ours(self, *, hung: bool) -> bool:
        """It answers with its pid. One that may hang is believed by the endpoint file, whose writer holds the lock."""
        if not hung:
            return await _ping(self.state_dir) == self.pid
        with contextlib.suppress(NotConnectedError):
            return read_endpoint(self.state_dir).pid == self.pid
        return False

    async def _gone(self, *, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.is_running():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _reap(self) -> None:
        if self._child is not None:
            self._child.poll()  # a dead child stays a zombie until somebody asks


async def start_or_adopt(*, state_dir: Path, rack_file: Path, seed: int | None = None) -> RackProcess:
    """The live rack of `state_dir`, or a new one in a session of its own, ready to be asked.

    Raises RackStartError with the end of the rack's log.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    if is_held(state_dir):
        return RackProcess(state_dir=state_dir, pid=await _until_ready(state_dir, deadline=deadline), child=None)
    child = await asyncio.to_thread(_spawn, state_dir, rack_file, seed)
    try:
        pid = await _until_ready(state_dir, deadline=deadline, child=child)
    except BaseException:
        child.kill()
        child.wait()
        raise
    if pid != child.pid:  # two of us started one at the same time, and the other one's holds the directory
        await asyncio.to_thread(child.wait)
        return RackProcess(state_dir=state_dir, pid=pid, child=None)
    return RackProcess(state_dir=state_dir, pid=pid, child=child)


def _spawn(state_dir: Path, rack_file: Path, seed: int | None) -> subprocess.Popen[bytes]:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [sys.executable, "-m", "fabric_manager.southbound.simulator"]
    options = [
        "--state",
        str(state_dir),
        "--rack",
        str(rack_file),
        *(["--seed", str(seed)] if seed is not None else []),
    ]
    with (state_dir / "rack.log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command + options, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


async def _until_ready(state_dir: Path, *, deadline: float, child: subprocess.Popen[bytes] | None = None) -> int:
    """The pid that answers. Asking, and not the endpoint file, is the proof: the file may be a dead rack's."""
    while True:
        if (pid := await _ping(state_dir)) is not None:
            return pid
        failed = child is not None and child.poll() is not None and not is_held(state_dir)
        if failed or time.monotonic() > deadline:
            raise RackStartError(
                f"the simulated rack in {state_dir} is not ready; its log ends: {_log_tail(state_dir)}"
            )
        await asyncio.sleep(POLL_S)


async def _ping(state_dir: Path) -> int | None:
    control = RackControl(state_dir, timeout_s=PING_TIMEOUT_S)
    try:
        return int((await control.ping())["pid"])
    except RackControlError:
        return None
    finally:
        await control.close()


def _log_tail(state_dir: Path) -> str:
    try:
        return (state_dir / "rack.log").read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        return "(no log)"
