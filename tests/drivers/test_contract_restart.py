"""The contract of every driver: hardware that is killed, restarted or replaced."""

import pytest

from fabric_manager.domain.units import GiB
from fabric_manager.southbound.driver import (
    ExtentState,
    OutcomeUnknownError,
    RefusedError,
    UnbindOption,
    VppbState,
)
from fabric_manager.southbound.simulator.faults import FaultKind
from tests.drivers.rig import DCD, DCD_PORT, MLD, MLD_PORT, SWITCH, Rig, until

SECRET = b"the last tenant's key"


async def boots(rig: Rig) -> dict[str, int | None]:
    seen = await rig.driver.inventory()
    switches = {switch.serial: switch.boot_count for switch in seen.switches}
    return switches | {device.serial: device.boot_count for device in seen.devices}


async def test_killed_hardware_comes_back_with_all_it_had_answered_for(rig: Rig) -> None:
    await rig.bound(ld_id=1)
    await rig.control.write("node-0", MLD, ld_id=1, address=0, data=SECRET)
    await rig.driver.set_qos(MLD, ld_id=1, share_n=7, limit_n=9)
    await rig.attached(0)
    await rig.accepted((GiB, GiB))
    await rig.control.write("node-0", DCD, ld_id=0, address=GiB, data=SECRET)
    seen = await rig.driver.inventory()
    extents, before = await rig.extents(), await boots(rig)
    await rig.killed()
    after = await boots(rig)
    assert all(after[serial] == (count or 0) + 1 for serial, count in before.items())
    assert (await rig.driver.inventory()).switches[0].vcs == seen.switches[0].vcs
    assert await rig.extents() == extents
    assert (await rig.driver.read_lds(MLD))[1].share_n == 7
    for device, ld_id, address in ((MLD, 1, 0), (DCD, 0, GiB)):
        assert await rig.control.read("node-0", device, ld_id=ld_id, address=address, size_bytes=len(SECRET)) == SECRET


async def test_a_restart_that_keeps_nothing_forgets_bindings_and_extents_but_no_byte(rig: Rig) -> None:
    await rig.attached(0)
    await rig.accepted((0, GiB))
    await rig.control.write("node-0", DCD, ld_id=0, address=0, data=SECRET)
    before = await boots(rig)
    await rig.control.restart(volatile=True)
    after = await boots(rig)
    assert all(after[serial] == (count or 0) + 1 for serial, count in before.items())
    assert (await rig.vppb(0, 3)).state is VppbState.FREE
    assert await rig.extents() == ()
    await rig.attached(0)
    await rig.accepted((0, GiB))
    assert await rig.control.read("node-0", DCD, ld_id=0, address=0, size_bytes=len(SECRET)) == SECRET


@pytest.mark.parametrize("volatile", [False, True])
async def test_a_switch_that_restarts_while_it_binds_has_bound_nothing(rig: Rig, volatile: bool) -> None:
    await rig.bound(vcs=1, ld_id=3)
    before = await rig.driver.switch_background(SWITCH)
    await rig.control.add_fault(FaultKind.RESTART, opcode=0x5201, volatile=volatile)
    await rig.driver.bind(SWITCH, vcs=0, vppb=0, port=MLD_PORT, ld_id=0)
    status = await until(lambda: rig.driver.switch_background(SWITCH), lambda s: s.boot_count != before.boot_count)
    assert (status.in_progress, status.opcode) == (False, 0)
    assert (await rig.vppb(0, 0)).state is VppbState.FREE
    assert (await rig.vppb(1, 0)).state is (VppbState.FREE if volatile else VppbState.BOUND_LD)


async def test_hardware_killed_before_it_answers_leaves_the_outcome_unknown(rig: Rig) -> None:
    await rig.driver.read_vcs(SWITCH, vcs=0)
    await rig.control.add_fault(FaultKind.DROP_AFTER, opcode=0x5201)
    with pytest.raises(OutcomeUnknownError):
        await rig.driver.bind(SWITCH, vcs=0, vppb=0, port=MLD_PORT, ld_id=0)
    await rig.switch_idle()
    await rig.killed()
    assert (await rig.vppb(0, 0)).state is VppbState.BOUND_LD


async def test_an_erasure_begun_before_the_kill_starts_again(rig: Rig) -> None:
    await rig.attached(0)
    tag = await rig.accepted((0, GiB))
    await rig.control.set_speed(0)
    await rig.driver.release_extents(DCD, host_ld=0, tag=tag, sanitize=True, forced=True)
    await rig.killed()
    assert [e.state for e in await rig.extents()] == [ExtentState.SANITIZING]
    await rig.control.set_speed(1)
    await rig.gone(tag)


async def test_an_offer_made_before_the_kill_is_answered_after_it(rig: Rig) -> None:
    await rig.attached(0)
    await rig.control.set_speed(0)
    tag = await rig.offered((0, GiB))
    await rig.killed()
    await rig.control.set_speed(1)
    await rig.in_state(ExtentState.ACCEPTED, tag)


async def test_a_replaced_device_has_another_serial_and_none_of_our_bytes(rig: Rig) -> None:
    await rig.bound()
    await rig.control.write("node-0", MLD, ld_id=0, address=0, data=SECRET)
    await rig.control.replace_device(MLD, serial="MLD-9")
    seen = await rig.driver.inventory()
    assert MLD not in {device.serial for device in seen.devices}
    port = next(port for port in seen.switches[0].ports if port.number == MLD_PORT)
    assert port.device_serial == "MLD-9"
    with pytest.raises(RefusedError):
        await rig.driver.read_lds(MLD)
    assert await rig.control.read("node-0", "MLD-9", ld_id=0, address=0, size_bytes=4) == bytes(4)
    await rig.killed()
    assert "MLD-9" in await boots(rig)


async def test_a_failing_device_says_so(rig: Rig) -> None:
    await rig.control.set_health(MLD, "failed")
    health = {device.serial: device.health for device in (await rig.driver.inventory()).devices}
    assert (health[MLD], health[DCD]) == ("failed", "ok")


async def test_a_forgotten_binding_can_be_made_again_over_extents_that_stayed(rig: Rig) -> None:
    await rig.attached(0)
    tag = await rig.accepted((0, GiB))
    await rig.control.restart(SWITCH, volatile=True)
    assert [e.tag for e in await rig.extents()] == [tag]
    await rig.bound(vcs=0, vppb=2, port=DCD_PORT, ld_id=0)
    assert await rig.control.read("node-0", DCD, ld_id=0, address=0, size_bytes=1) == b"\0"
    await rig.driver.unbind(SWITCH, vcs=0, vppb=2, option=UnbindOption.WAIT_LINK_DOWN)
    assert (await rig.switch_idle()).return_code == 0
