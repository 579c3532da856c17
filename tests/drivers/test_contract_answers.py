"""The contract of every driver: what it raises when answers are late, lost, doubled or unwelcome."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from fabric_manager.domain.units import GiB
from fabric_manager.southbound.driver import (
    BusyError,
    ExtentState,
    OutcomeUnknownError,
    RefusedError,
    UnbindOption,
    UnreachableError,
    VppbState,
)
from fabric_manager.southbound.simulator.faults import FaultKind
from tests.drivers.rig import DCD, DRIVER_TIMEOUT_S, MLD, MLD_PORT, SWITCH, Rig, until

TAG = uuid4()
Command = Callable[[Rig], Awaitable[object]]
# fmt: off
CHANGES: list[tuple[int, Command]] = [
    (0x5201, lambda r: r.driver.bind(SWITCH, vcs=0, vppb=0, port=MLD_PORT, ld_id=0)),
    (0x5202, lambda r: r.driver.unbind(SWITCH, vcs=0, vppb=0, option=UnbindOption.MANAGED)),
    (0x0005, lambda r: r.driver.abort_background(MLD)),
    (0x5402, lambda r: r.driver.set_ld_sizes(MLD, sizes_bytes=[GiB])),
    (0x5409, lambda r: r.driver.set_qos(MLD, ld_id=0, share_n=1, limit_n=1)),
    (0x5407, lambda r: r.driver.set_qos(MLD, ld_id=0, share_n=1, limit_n=1)),
    (0x4400, lambda r: r.driver.sanitize_ld(MLD, ld_id=0)),
    (0x5604, lambda r: r.driver.offer_extents(DCD, host_ld=0, tag=TAG, region=0, spans=[(0, GiB)])),
    (0x5605, lambda r: r.driver.release_extents(DCD, host_ld=0, tag=TAG, sanitize=True, forced=False)),
]
READS: list[tuple[int, Command]] = [
    (0x5101, lambda r: r.driver.inventory()),
    (0x5200, lambda r: r.driver.read_vcs(SWITCH, vcs=0)),
    (0x0002, lambda r: r.driver.switch_background(SWITCH)),
    (0x0002, lambda r: r.driver.device_background(MLD)),
    (0x5401, lambda r: r.driver.read_lds(MLD)),
    (0x5603, lambda r: r.driver.read_extents(DCD, host_ld=0)),
]
# fmt: on


@pytest.mark.parametrize(("opcode", "command"), CHANGES, ids=[f"{opcode:04x}h" for opcode, _ in CHANGES])
async def test_a_change_without_an_answer_has_an_unknown_outcome(rig: Rig, opcode: int, command: Command) -> None:
    await rig.control.add_fault(FaultKind.DROP_BEFORE, opcode=opcode)
    with pytest.raises(OutcomeUnknownError):
        await command(rig)
    last = [frame for frame in rig.frames if frame.opcode == opcode][-1]
    assert (last.return_code, last.response, last.answered_at) == (None, None, None)


@pytest.mark.parametrize(("opcode", "command"), READS, ids=[f"{opcode:04x}h" for opcode, _ in READS])
async def test_a_read_without_an_answer_is_unreachable(rig: Rig, opcode: int, command: Command) -> None:
    await rig.control.add_fault(FaultKind.DROP_BEFORE, opcode=opcode)
    with pytest.raises(UnreachableError):
        await command(rig)
    await command(rig)  # and the next one works


@pytest.mark.parametrize(("opcode", "command"), [*CHANGES, *READS])
async def test_busy_and_refused_change_nothing_and_say_so(rig: Rig, opcode: int, command: Command) -> None:
    await rig.control.add_fault(FaultKind.BUSY, opcode=opcode)
    with pytest.raises(BusyError):
        await command(rig)
    await rig.control.add_fault(FaultKind.REFUSE, opcode=opcode, code=0x0013)
    with pytest.raises(RefusedError) as refused:
        await command(rig)
    assert refused.value.code == 0x0013
    assert await rig.executed(opcode) == await refusals(rig, opcode)


async def refusals(rig: Rig, opcode: int) -> int:
    return sum(int(e["op"], 16) == opcode and e["code"] in (0x0006, 0x0013) for e in await rig.control.journal())


async def test_reading_tells_a_lost_request_from_a_lost_answer(rig: Rig) -> None:
    await rig.control.add_fault(FaultKind.DROP_BEFORE, opcode=0x5201)
    with pytest.raises(OutcomeUnknownError):
        await rig.driver.bind(SWITCH, vcs=0, vppb=0, port=MLD_PORT, ld_id=0)
    assert (await rig.vppb(0, 0)).state is VppbState.FREE
    await rig.control.add_fault(FaultKind.DROP_AFTER, opcode=0x5201)
    with pytest.raises(OutcomeUnknownError):
        await rig.driver.bind(SWITCH, vcs=0, vppb=0, port=MLD_PORT, ld_id=0)
    await rig.switch_idle()
    assert (await rig.vppb(0, 0)).state is VppbState.BOUND_LD


async def test_an_offer_whose_answer_was_lost_can_be_made_again(rig: Rig) -> None:
    await rig.attached(0)
    await rig.control.add_fault(FaultKind.DROP_AFTER, opcode=0x5604)
    offer = CHANGES[7][1]
    with pytest.raises(OutcomeUnknownError):
        await offer(rig)
    await offer(rig)
    await rig.in_state(ExtentState.ACCEPTED, TAG)
    assert len(await rig.extents()) == 1


async def test_a_command_is_executed_once_however_often_it_is_answered(rig: Rig) -> None:
    await rig.control.add_fault(FaultKind.DUPLICATE, opcode=0x5201, seconds=0.01)
    await rig.bound()
    assert await rig.executed(0x5201) == 1
    assert (await rig.vppb(0, 0)).state is VppbState.BOUND_LD


@pytest.mark.parametrize("kind", [FaultKind.DELAY, FaultKind.LATE_ANSWER])
async def test_a_late_answer_is_not_taken_for_another_commands(rig: Rig, kind: FaultKind) -> None:
    late_s = DRIVER_TIMEOUT_S + 0.2
    await rig.control.add_fault(kind, opcode=0x4400, seconds=late_s)
    with pytest.raises(OutcomeUnknownError):
        await rig.driver.sanitize_ld(MLD, ld_id=0)
    journal = await until(rig.control.journal, lambda es: any(int(e["op"], 16) == 0x4400 for e in es))
    assert [e["code"] for e in journal if int(e["op"], 16) == 0x4400] == [1]  # it was executed all the same
    assert len(await rig.driver.read_lds(MLD)) == 4


async def test_one_slow_command_does_not_hold_up_the_others(rig: Rig) -> None:
    await rig.control.add_fault(FaultKind.DELAY, opcode=0x5603, seconds=0.3)
    slow = asyncio.create_task(rig.extents())
    await until(rig.control.faults, lambda faults: not faults["rules"])
    await rig.driver.read_lds(MLD)
    assert not slow.done()
    assert await slow == ()


async def test_an_internal_error_leaves_the_outcome_of_a_change_unknown(rig: Rig) -> None:
    await rig.control.add_fault(FaultKind.REFUSE, opcode=0x5407, code=0x0004)
    with pytest.raises(OutcomeUnknownError):
        await rig.driver.set_qos(MLD, ld_id=0, share_n=1, limit_n=1)


async def test_with_no_hardware_nothing_was_sent(rig: Rig) -> None:
    await rig.process.kill()
    sent = len(rig.frames)
    for _, command in [*CHANGES, *READS]:
        with pytest.raises(UnreachableError):
            await command(rig)
    assert len(rig.frames) == sent


async def test_each_exchange_is_one_frame(rig: Rig) -> None:
    await rig.driver.bind(SWITCH, vcs=0, vppb=1, port=MLD_PORT, ld_id=2)
    (frame,) = rig.frames
    assert (frame.component, frame.opcode, frame.command, frame.return_code) == (SWITCH, 0x5201, "Bind vPPB", 1)
    assert frame.request == {"vcs": 0, "vppb": 1, "port": MLD_PORT, "ld_id": 2}
    assert frame.answered_at is not None
    assert frame.sent_at <= frame.answered_at
