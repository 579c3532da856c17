"""The contract of every driver: logical devices, their sizes, shares and erasure."""

import pytest

from fabric_manager.domain.units import GiB, MiB
from fabric_manager.southbound.driver import BusyError, LdFacts, RefusedError
from fabric_manager.southbound.simulator.control import RackControlError
from fabric_manager.southbound.simulator.faults import FaultKind, Knob
from tests.drivers.rig import DCD, MLD, MLD_PORT, MLD_RESIZE, MLD_RESIZE_PORT, SWITCH, Rig, until

SECRET = b"the last tenant's key"


async def read(rig: Rig, *, host: str = "node-0", ld_id: int = 0) -> bytes:
    return await rig.control.read(host, MLD, ld_id=ld_id, address=4090, size_bytes=len(SECRET))


async def dirty_and_unbound(rig: Rig, *, ld_id: int = 0) -> None:
    await rig.bound(ld_id=ld_id)
    await rig.control.write("node-0", MLD, ld_id=ld_id, address=4090, data=SECRET)
    await rig.unbound()


async def test_lds_are_read_with_sizes_in_bytes(rig: Rig) -> None:
    assert await rig.driver.read_lds(MLD) == tuple(LdFacts(ld_id=n, size_bytes=GiB) for n in range(4))


async def test_qos_is_read_back_as_written(rig: Rig) -> None:
    held = await rig.driver.set_qos(MLD, ld_id=2, share_n=64, limit_n=255)
    assert held == LdFacts(ld_id=2, size_bytes=GiB, share_n=64, limit_n=255)
    assert (await rig.driver.read_lds(MLD))[2] == held
    assert [f.opcode for f in rig.frames if f.opcode in (0x5407, 0x5409)] == [0x5409, 0x5407]


async def test_a_host_interface_has_qos_too(rig: Rig) -> None:
    held = await rig.driver.set_qos(DCD, ld_id=1, share_n=32, limit_n=128)
    assert (held.share_n, held.limit_n) == (32, 128)


@pytest.mark.parametrize(("ld_id", "share_n"), [(16, 1), (0, 256), (0, -1)])
async def test_qos_out_of_range_is_refused(rig: Rig, ld_id: int, share_n: int) -> None:
    with pytest.raises(RefusedError):
        await rig.driver.set_qos(MLD, ld_id=ld_id, share_n=share_n, limit_n=255)


async def test_lds_are_carved_anew(rig: Rig) -> None:
    table = await rig.driver.set_ld_sizes(MLD_RESIZE, sizes_bytes=[512 * MiB, 2 * GiB, 256 * MiB, GiB])
    assert [ld.size_bytes for ld in table] == [512 * MiB, 2 * GiB, 256 * MiB, GiB]
    assert await rig.driver.read_lds(MLD_RESIZE) == table


async def test_more_than_the_device_holds_is_not_carved(rig: Rig) -> None:
    with pytest.raises(RefusedError):
        await rig.driver.set_ld_sizes(MLD_RESIZE, sizes_bytes=[2 * GiB, 2 * GiB, GiB, GiB])


async def test_lds_are_carved_in_whole_granules(rig: Rig) -> None:
    with pytest.raises(RefusedError):
        await rig.driver.set_ld_sizes(MLD_RESIZE, sizes_bytes=[GiB + 1])
    assert {ld.size_bytes for ld in await rig.driver.read_lds(MLD_RESIZE)} == {GiB}


async def test_lds_are_not_carved_while_one_is_bound(rig: Rig) -> None:
    await rig.bound(port=MLD_RESIZE_PORT, ld_id=1)
    with pytest.raises(RefusedError):
        await rig.driver.set_ld_sizes(MLD_RESIZE, sizes_bytes=[GiB])


async def test_a_device_without_ld_resize_is_not_carved(rig: Rig) -> None:
    with pytest.raises(RefusedError) as refused:
        await rig.driver.set_ld_sizes(MLD, sizes_bytes=[GiB])
    assert refused.value.code == 0x0003


async def test_the_next_host_reads_what_nobody_erased(rig: Rig) -> None:
    await dirty_and_unbound(rig)
    await rig.bound(vcs=1)
    assert await read(rig, host="node-1") == SECRET


async def test_after_sanitize_the_next_host_reads_zeros(rig: Rig) -> None:
    await dirty_and_unbound(rig)
    await rig.driver.sanitize_ld(MLD, ld_id=0)
    status = await rig.device_idle(MLD)
    assert (status.opcode, status.return_code, status.ld_id) == (0x4400, 0, 0)
    await rig.bound(vcs=1)
    assert await read(rig, host="node-1") == bytes(len(SECRET))


async def test_sanitize_erases_one_ld_and_no_other(rig: Rig) -> None:
    await dirty_and_unbound(rig, ld_id=0)
    await rig.driver.sanitize_ld(MLD, ld_id=1)
    await rig.device_idle(MLD)
    await rig.bound()
    assert await read(rig) == SECRET


async def test_a_bound_ld_is_not_sanitized(rig: Rig) -> None:
    await rig.bound()
    with pytest.raises(RefusedError):
        await rig.driver.sanitize_ld(MLD, ld_id=0)


async def test_an_ld_that_does_not_exist_is_not_sanitized(rig: Rig) -> None:
    with pytest.raises(RefusedError):
        await rig.driver.sanitize_ld(MLD, ld_id=9)


async def test_an_ld_is_out_of_reach_while_it_is_sanitized(rig: Rig) -> None:
    await rig.control.set_speed(0)
    await rig.driver.sanitize_ld(MLD, ld_id=0)
    with pytest.raises(RefusedError):
        await rig.driver.bind(SWITCH, vcs=0, vppb=0, port=MLD_PORT, ld_id=0)
    with pytest.raises(BusyError):
        await rig.driver.sanitize_ld(MLD, ld_id=1)
    await rig.control.bind(SWITCH, vcs=0, vppb=0, port=MLD_PORT, ld_id=0)
    with pytest.raises(RackControlError, match="being erased"):
        await read(rig)


async def test_sanitize_takes_its_time(rig: Rig) -> None:
    await rig.control.set_speed(0)
    await rig.driver.sanitize_ld(MLD, ld_id=0)
    await rig.control.step(1 / 64)  # half of 1 GiB at 32 GiB/s
    assert (await rig.driver.device_background(MLD)).percent == 50


async def test_an_aborted_sanitize_says_so_and_erases_nothing(rig: Rig) -> None:
    await dirty_and_unbound(rig)
    await rig.control.set_speed(0)
    await rig.driver.sanitize_ld(MLD, ld_id=0)
    await rig.driver.abort_background(MLD)
    status = await rig.driver.device_background(MLD)
    assert (status.in_progress, status.return_code) == (False, 0x0012)
    await rig.control.set_speed(1)
    await rig.bound()
    assert await read(rig) == SECRET


async def test_a_failed_sanitize_says_so_and_erases_nothing(rig: Rig) -> None:
    await dirty_and_unbound(rig)
    await rig.control.add_fault(FaultKind.SANITIZE_FAIL, component=MLD)
    await rig.driver.sanitize_ld(MLD, ld_id=0)
    assert (await rig.device_idle(MLD)).return_code == 0x0004
    await rig.bound()
    assert await read(rig) == SECRET


async def test_a_restart_in_the_middle_of_a_sanitize_leaves_no_word_of_it(rig: Rig) -> None:
    await dirty_and_unbound(rig)
    before = await rig.driver.device_background(MLD)
    await rig.control.add_fault(FaultKind.RESTART, opcode=0x4400)
    await rig.driver.sanitize_ld(MLD, ld_id=0)
    status = await until(lambda: rig.driver.device_background(MLD), lambda s: s.boot_count != before.boot_count)
    assert (status.in_progress, status.opcode) == (False, 0)
    await rig.bound()
    assert await read(rig) == SECRET


@pytest.mark.parametrize("careless", ["knob", "lie"])
async def test_only_reading_the_bytes_unmasks_an_erasure_that_was_none(rig: Rig, careless: str) -> None:
    await dirty_and_unbound(rig)
    if careless == "knob":
        await rig.control.set_knobs([Knob.SKIP_SANITIZE])
    else:
        await rig.control.add_fault(FaultKind.LIE, opcode=0x4400)
    await rig.driver.sanitize_ld(MLD, ld_id=0)
    assert (await rig.device_idle(MLD)).return_code == 0
    await rig.bound()
    assert await read(rig) == SECRET


async def test_a_host_reaches_only_what_is_bound_to_it(rig: Rig) -> None:
    await rig.bound(vcs=0)
    with pytest.raises(RackControlError, match="not bound to node-1"):
        await read(rig, host="node-1")
