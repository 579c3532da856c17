"""The contract of every driver: vPPBs."""

import pytest

from fabric_manager.southbound.driver import BusyError, RefusedError, UnbindOption, VppbState
from fabric_manager.southbound.simulator.faults import FaultKind, Knob
from tests.drivers.rig import DCD, DCD_PORT, MLD, MLD_PORT, MLD_RESIZE, SLD, SLD_PORT, SWITCH, Rig


async def test_the_inventory_names_every_switch_and_device(rig: Rig) -> None:
    seen = await rig.driver.inventory()
    assert [switch.name for switch in seen.switches] == [SWITCH]
    assert {device.serial: device.kind for device in seen.devices} == {
        MLD: "mld",
        MLD_RESIZE: "mld",
        SLD: "sld",
        DCD: "dcd",
    }
    ports = {port.number: port for port in seen.switches[0].ports}
    assert all(ports[device.port].device_serial == device.serial for device in seen.devices)


async def test_a_bind_is_accepted_at_once_and_done_later(rig: Rig) -> None:
    await rig.control.set_speed(0)
    await rig.driver.bind(SWITCH, vcs=1, vppb=2, port=MLD_PORT, ld_id=3)
    assert (await rig.driver.switch_background(SWITCH)).in_progress
    assert (await rig.vppb(1, 2)).state is VppbState.BUSY
    await rig.control.step(1)
    status = await rig.driver.switch_background(SWITCH)
    assert (status.in_progress, status.opcode, status.return_code, status.ld_id) == (False, 0x5201, 0, 3)
    vppb = await rig.vppb(1, 2)
    assert (vppb.state, vppb.port, vppb.ld_id) == (VppbState.BOUND_LD, MLD_PORT, 3)


async def test_a_component_runs_one_background_operation_at_a_time(rig: Rig) -> None:
    await rig.control.set_speed(0)
    await rig.driver.bind(SWITCH, vcs=0, vppb=0, port=MLD_PORT, ld_id=0)
    with pytest.raises(BusyError):
        await rig.driver.bind(SWITCH, vcs=1, vppb=0, port=MLD_PORT, ld_id=1)
    await rig.control.step(1)
    await rig.driver.bind(SWITCH, vcs=1, vppb=0, port=MLD_PORT, ld_id=1)


async def test_unbinding_frees_the_vppb(rig: Rig) -> None:
    await rig.bound()
    await rig.unbound()
    assert (await rig.vppb(0, 0)).state is VppbState.FREE


async def test_a_whole_port_is_bound_without_an_ld(rig: Rig) -> None:
    await rig.bound(port=SLD_PORT, ld_id=None)
    vppb = await rig.vppb(0, 0)
    assert (vppb.state, vppb.port, vppb.ld_id) == (VppbState.BOUND_PORT, SLD_PORT, None)


@pytest.mark.parametrize(
    ("vcs", "vppb", "port", "ld_id"),
    [
        pytest.param(9, 0, MLD_PORT, 0, id="unknown VCS"),
        pytest.param(0, 9, MLD_PORT, 0, id="unknown vPPB"),
        pytest.param(0, 0, 99, 0, id="unknown port"),
        pytest.param(0, 0, 0, 0, id="upstream port"),
        pytest.param(0, 0, MLD_PORT, 4, id="LD beyond the table"),
        pytest.param(0, 0, MLD_PORT, None, id="MLD as a whole"),
        pytest.param(0, 0, SLD_PORT, 0, id="LD of an SLD"),
        pytest.param(0, 0, DCD_PORT, 3, id="host interface beyond the last"),
    ],
)
async def test_a_bind_of_what_does_not_exist_is_refused(
    rig: Rig, vcs: int, vppb: int, port: int, ld_id: int | None
) -> None:
    with pytest.raises(RefusedError) as refused:
        await rig.driver.bind(SWITCH, vcs=vcs, vppb=vppb, port=port, ld_id=ld_id)
    assert refused.value.code == 0x0002


async def test_an_ld_is_bound_to_one_host_only(rig: Rig) -> None:
    await rig.bound(vcs=0)
    with pytest.raises(RefusedError):
        await rig.driver.bind(SWITCH, vcs=1, vppb=0, port=MLD_PORT, ld_id=0)


async def test_a_vppb_is_bound_to_one_ld_only(rig: Rig) -> None:
    await rig.bound(ld_id=0)
    with pytest.raises(RefusedError):
        await rig.driver.bind(SWITCH, vcs=0, vppb=0, port=MLD_PORT, ld_id=1)


async def test_unbinding_what_is_not_bound_is_refused(rig: Rig) -> None:
    with pytest.raises(RefusedError):
        await rig.driver.unbind(SWITCH, vcs=0, vppb=0, option=UnbindOption.MANAGED)


async def test_a_managed_unbind_leaves_memory_that_is_online(rig: Rig) -> None:
    await rig.bound()
    await rig.control.set_online("node-0", f"{MLD}/0", online=True)
    await rig.driver.unbind(SWITCH, vcs=0, vppb=0, option=UnbindOption.MANAGED)
    assert (await rig.switch_idle()).return_code != 0
    assert (await rig.vppb(0, 0)).state is VppbState.BOUND_LD


async def test_a_surprise_unbind_takes_memory_that_is_online(rig: Rig) -> None:
    await rig.bound()
    await rig.control.set_online("node-0", f"{MLD}/0", online=True)
    await rig.driver.unbind(SWITCH, vcs=0, vppb=0, option=UnbindOption.SURPRISE)
    assert (await rig.switch_idle()).return_code == 0
    assert (await rig.control.host("node-0"))["machine_checks"] == 1


async def test_a_binding_made_past_us_is_seen(rig: Rig) -> None:
    await rig.control.bind(SWITCH, vcs=2, vppb=1, port=MLD_PORT, ld_id=2)
    vppb = await rig.vppb(2, 1)
    assert (vppb.state, vppb.ld_id) == (VppbState.BOUND_LD, 2)
    await rig.control.unbind(SWITCH, vcs=2, vppb=1)
    assert (await rig.vppb(2, 1)).state is VppbState.FREE


async def test_a_careless_switch_is_seen_to_give_one_ld_to_two_hosts(rig: Rig) -> None:
    await rig.control.set_knobs([Knob.NO_BIND_CONFLICT_CHECK])
    await rig.bound(vcs=0)
    await rig.bound(vcs=1)
    assert (await rig.vppb(0, 0)).ld_id == (await rig.vppb(1, 0)).ld_id == 0


async def test_a_switch_that_checks_late_tells_in_its_background_status(rig: Rig) -> None:
    await rig.control.set_knobs([Knob.LATE_BIND_ERRORS])
    await rig.driver.bind(SWITCH, vcs=0, vppb=0, port=MLD_PORT, ld_id=4)
    assert (await rig.switch_idle()).return_code == 0x0002
    assert (await rig.vppb(0, 0)).state is VppbState.FREE


async def test_reading_back_unmasks_a_switch_that_lies(rig: Rig) -> None:
    await rig.control.add_fault(FaultKind.LIE, opcode=0x5201)
    await rig.bound()  # success, says the switch
    assert (await rig.vppb(0, 0)).state is VppbState.FREE
