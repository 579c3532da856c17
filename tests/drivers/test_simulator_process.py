"""The rack's process: started once, adopted, stopped, and deaf to strangers."""

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from fabric_manager.southbound.driver import Frame, OutcomeUnknownError, UnreachableError
from fabric_manager.southbound.simulator.control import RackControl, RackControlError
from fabric_manager.southbound.simulator.driver import SimulatorDriver
from fabric_manager.southbound.simulator.faults import FaultKind
from fabric_manager.southbound.simulator.supervise import RackProcess, RackStartError, start_or_adopt
from fabric_manager.southbound.simulator.wire import read_endpoint
from tests.drivers.rig import MLD, RACK_FILE, SWITCH, until


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[RackProcess]:
    started = await start_or_adopt(state_dir=tmp_path, rack_file=RACK_FILE)
    yield started
    await started.stop()


def driver_of(process: RackProcess, frames: list[Frame], *, timeout_s: float = 0.4) -> SimulatorDriver:
    return SimulatorDriver(
        process.endpoint,
        state_dir=process.state_dir,
        frames=frames.append,
        timeout_s=timeout_s,
        now=lambda: datetime.now(UTC),
    )


async def test_a_live_rack_is_adopted_and_can_be_stopped(process: RackProcess) -> None:
    adopted = await start_or_adopt(state_dir=process.state_dir, rack_file=RACK_FILE)
    assert (adopted.adopted, adopted.pid) == (True, process.pid)
    await adopted.stop()
    assert not process.is_running()
    await adopted.stop()  # again: nothing to do


async def test_two_starts_at_once_make_one_rack(tmp_path: Path) -> None:
    first, second = await asyncio.gather(*(start_or_adopt(state_dir=tmp_path, rack_file=RACK_FILE) for _ in range(2)))
    assert first.pid == second.pid
    await first.stop()
    await second.stop()


async def test_a_stopped_rack_can_be_started_again(process: RackProcess) -> None:
    boot = read_endpoint(process.state_dir).boot
    await process.stop()
    again = await start_or_adopt(state_dir=process.state_dir, rack_file=RACK_FILE)
    assert read_endpoint(process.state_dir).boot == boot + 1
    await again.stop()


async def test_a_rack_that_hangs_is_stopped_all_the_same(process: RackProcess) -> None:
    adopted = await start_or_adopt(state_dir=process.state_dir, rack_file=RACK_FILE)
    os.kill(process.pid, signal.SIGSTOP)
    await adopted.stop(timeout_s=0.1)
    assert not process.is_running()


async def test_the_pid_of_a_dead_rack_is_not_signalled(process: RackProcess) -> None:
    await process.kill()
    bystander = await asyncio.create_subprocess_exec("sleep", "60")
    stale = RackProcess(state_dir=process.state_dir, pid=bystander.pid, child=None)
    await stale.stop()
    await stale.kill()
    assert bystander.returncode is None
    bystander.kill()
    await bystander.wait()


async def test_the_rack_lives_in_a_session_of_its_own(process: RackProcess) -> None:
    assert os.getsid(process.pid) == process.pid != os.getsid(0)


async def test_only_the_owner_reads_the_token(process: RackProcess) -> None:
    mode = (process.state_dir / "endpoint.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


async def test_a_bad_rack_file_says_what_is_wrong(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(RACK_FILE.read_text().replace("4 x 1 GiB", "4 x 1 GB"))
    with pytest.raises(RackStartError, match="size '1 GB'"):
        await start_or_adopt(state_dir=tmp_path / "rack", rack_file=bad)


@pytest.mark.parametrize(
    "line",
    [b"\n", b"[]\n", b"\xff\xfe\n", b'{"token": "guess"}\n', b'{"token": null}\n', b"GET / HTTP/1.1\r\n\r\n"],
)
async def test_a_stranger_is_shown_the_door(process: RackProcess, line: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", read_endpoint(process.state_dir).port)
    writer.write(line)
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"channel": "hardware", "op": "zz", "component": SWITCH, "args": {}},
        {"channel": "hardware", "op": "5201", "component": SWITCH, "args": {"vcs": "x"}},
        {"channel": "hardware", "op": "5201", "component": "nobody", "args": {}},
        {"channel": "hardware", "op": "7777", "component": SWITCH, "args": {}},
        {"channel": "hardware", "op": "5604", "component": "DCD-0", "args": {"extents": 3}},
        {"channel": "control", "op": "nothing", "args": {}},
        {"channel": "control", "op": "add_fault", "args": {"kind": "gremlins"}},
        {"channel": "control", "op": "add_fault", "args": {"kind": "busy", "opcode": "5201h"}},
        {"channel": "control", "op": "execute", "args": {}},
    ],
)
async def test_a_request_nobody_understands_is_refused(process: RackProcess, request_: dict[str, object]) -> None:
    endpoint = read_endpoint(process.state_dir)
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    writer.write(orjson.dumps({"token": endpoint.token}) + b"\n" + orjson.dumps({"tag": 7, **request_}) + b"\n")
    async with asyncio.timeout(5):
        await reader.readline()
        answer = orjson.loads(await reader.readline())
    assert (answer["tag"], answer["code"] in (2, 3)) == (7, True)
    writer.close()


async def test_late_and_double_answers_are_counted_and_dropped(process: RackProcess) -> None:
    driver, control = driver_of(process, []), RackControl(process.state_dir)
    await control.add_fault(FaultKind.DUPLICATE, opcode=0x5401)
    assert len(await driver.read_lds(MLD)) == 4
    await control.add_fault(FaultKind.LATE_ANSWER, opcode=0x0005, seconds=0.5)
    with pytest.raises(OutcomeUnknownError):
        await driver.abort_background(MLD)

    async def strays() -> int:
        return driver.stray_answers

    await until(strays, lambda count: count == 2)
    await driver.close()
    assert driver.stray_answers == 2
    await control.close()


async def test_a_frame_is_kept_of_a_command_whose_caller_gave_up(process: RackProcess) -> None:
    frames: list[Frame] = []
    driver, control = driver_of(process, frames, timeout_s=5.0), RackControl(process.state_dir)
    await control.add_fault(FaultKind.DROP_AFTER, opcode=0x0005)
    asking = asyncio.create_task(driver.abort_background(MLD))
    await until(control.journal, bool)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert [(frame.opcode, frame.return_code) for frame in frames] == [(0x0005, None)]
    await driver.close()
    await control.close()


async def test_a_rack_killed_in_the_middle_of_a_command_leaves_its_outcome_unknown(process: RackProcess) -> None:
    driver, control = driver_of(process, [], timeout_s=5.0), RackControl(process.state_dir)
    await control.add_fault(FaultKind.DROP_AFTER, opcode=0x0005)
    asking = asyncio.create_task(driver.abort_background(MLD))
    await until(control.journal, bool)
    await process.kill()
    with pytest.raises(OutcomeUnknownError):
        await asking
    with pytest.raises(UnreachableError):
        await driver.abort_background(MLD)
    with pytest.raises(RackControlError):
        await control.ping()
    await driver.close()
    await control.close()


async def test_faults_and_time_survive_a_kill(process: RackProcess) -> None:
    control = RackControl(process.state_dir)
    await control.put_faults(rules=[{"kind": "busy", "opcode": 0x5201, "count": 3}], knobs=["skip_sanitize"])
    await control.set_speed(0)
    before = await control.faults()
    await process.kill()
    again = await start_or_adopt(state_dir=process.state_dir, rack_file=RACK_FILE)
    assert await control.faults() == before
    await control.close()
    await again.stop()
