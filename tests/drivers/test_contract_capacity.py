"""The contract of every driver: dynamic capacity."""

from uuid import uuid4

import pytest

from fabric_manager.domain.units import GiB, MiB
from fabric_manager.southbound.driver import ExtentState, RefusedError
from fabric_manager.southbound.simulator.control import RackControlError
from fabric_manager.southbound.simulator.faults import FaultKind
from tests.drivers.rig import DCD, Rig, until

SECRET = b"the last tenant's key"
KEPT_DIRTY = 4 * GiB  # where the region begins that does not erase on release


async def release(rig: Rig, tag: object, *, sanitize: bool = True, forced: bool = False, host_ld: int = 0) -> None:
    await rig.driver.release_extents(DCD, host_ld=host_ld, tag=tag, sanitize=sanitize, forced=forced)  # type: ignore[arg-type]


async def test_an_offer_is_made_at_once_and_accepted_later(rig: Rig) -> None:
    await rig.attached(0)
    await rig.control.set_speed(0)
    tag = await rig.offered((0, GiB), (2 * GiB, MiB * 512))
    assert {e.state for e in await rig.extents()} == {ExtentState.OFFERED}
    await rig.control.step(1)
    seen = await rig.extents()
    assert [(e.start_bytes, e.size_bytes, e.tag, e.state) for e in seen] == [
        (0, GiB, tag, ExtentState.ACCEPTED),
        (2 * GiB, MiB * 512, tag, ExtentState.ACCEPTED),
    ]


async def test_a_refused_offer_is_gone(rig: Rig) -> None:
    await rig.attached(0)
    await rig.control.set_host("node-0", on_offer="refuse")
    await rig.gone(await rig.offered((0, GiB)))


@pytest.mark.parametrize(
    ("spans", "kept"),
    [
        pytest.param([(0, GiB), (GiB, GiB)], [(0, GiB)], id="the first of two"),
        pytest.param([(0, 6 * MiB)], [(0, 2 * MiB)], id="the first half, in whole blocks"),
        pytest.param([(0, 2 * MiB)], [], id="nothing of one block"),
    ],
)
async def test_a_partial_answer_shows_what_was_taken(
    rig: Rig, spans: list[tuple[int, int]], kept: list[tuple[int, int]]
) -> None:
    await rig.attached(0)
    await rig.control.set_host("node-0", on_offer="partial")
    await rig.offered(*spans)
    seen = await until(rig.extents, lambda es: all(e.state is ExtentState.ACCEPTED for e in es))
    assert [(e.start_bytes, e.size_bytes) for e in seen] == kept


async def test_what_a_host_did_not_take_is_free_again(rig: Rig) -> None:
    await rig.attached(0, 1)
    await rig.control.set_host("node-0", on_offer="partial")
    tag = await rig.accepted((0, 4 * GiB))
    await rig.accepted((0, 2 * GiB), host_ld=1)
    await rig.control.set_host("node-0", on_offer="refuse")
    await release(rig, tag)
    await rig.gone(tag)
    await rig.gone(await rig.offered((0, 2 * GiB)))
    await rig.control.set_host("node-0", on_offer="accept")
    await rig.accepted((0, GiB), (GiB, GiB))


async def test_a_silent_host_leaves_the_offer_until_it_is_withdrawn(rig: Rig) -> None:
    await rig.attached(0)
    await rig.control.set_host("node-0", on_offer="silent")
    await rig.control.set_speed(0)
    tag = await rig.offered((0, GiB))
    await rig.control.step(3600)
    assert [e.state for e in await rig.extents()] == [ExtentState.OFFERED]
    with pytest.raises(RefusedError):
        await release(rig, tag)
    await release(rig, tag, forced=True)
    await rig.control.step(1)
    assert await rig.extents() == ()


async def test_one_tag_is_one_offer(rig: Rig) -> None:
    await rig.attached(0)
    tag = await rig.accepted((0, GiB))
    await rig.driver.offer_extents(DCD, host_ld=0, tag=tag, region=0, spans=[(0, GiB)])
    assert [(e.start_bytes, e.state) for e in await rig.extents()] == [(0, ExtentState.ACCEPTED)]


async def test_one_tag_has_one_host(rig: Rig) -> None:
    await rig.attached(0, 1)
    tag = await rig.accepted((0, GiB))
    with pytest.raises(RefusedError):
        await rig.driver.offer_extents(DCD, host_ld=1, tag=tag, region=0, spans=[(0, GiB)])


@pytest.mark.parametrize(
    ("region", "spans"),
    [
        pytest.param(0, [(MiB, 2 * MiB)], id="start within a block"),
        pytest.param(0, [(0, 3 * MiB)], id="size not in blocks"),
        pytest.param(0, [(0, 0)], id="no bytes"),
        pytest.param(0, [], id="no extent"),
        pytest.param(0, [(4 * GiB - 2 * MiB, 4 * MiB)], id="past the region's end"),
        pytest.param(1, [(0, 2 * MiB)], id="before the region's base"),
        pytest.param(7, [(0, 2 * MiB)], id="no such region"),
        pytest.param(0, [(0, 4 * MiB), (2 * MiB, 2 * MiB)], id="over itself"),
    ],
)
async def test_an_offer_that_cannot_be_is_refused(rig: Rig, region: int, spans: list[tuple[int, int]]) -> None:
    await rig.attached(0)
    with pytest.raises(RefusedError):
        await rig.offered(*spans, region=region)
    assert await rig.extents() == ()


async def test_an_offer_over_another_ones_span_is_refused(rig: Rig) -> None:
    await rig.attached(0)
    await rig.accepted((0, GiB))
    with pytest.raises(RefusedError):
        await rig.offered((GiB - 2 * MiB, 4 * MiB))


async def test_two_hosts_may_use_the_same_addresses_of_their_own_spaces(rig: Rig) -> None:
    await rig.attached(0, 1)
    await rig.accepted((0, GiB), host_ld=0)
    await rig.accepted((0, GiB), host_ld=1)
    await rig.control.write("node-0", DCD, ld_id=0, address=0, data=SECRET)
    there = await rig.control.read("node-1", DCD, ld_id=1, address=0, size_bytes=len(SECRET))
    assert there == bytes(len(SECRET))


async def test_capacity_counts_over_all_hosts_until_it_is_gone(rig: Rig) -> None:
    await rig.attached(0, 1)
    tag = await rig.accepted((0, 3 * GiB))
    with pytest.raises(RefusedError) as refused:
        await rig.offered((0, 2 * GiB), host_ld=1)
    assert refused.value.code == 0x001D
    await rig.control.set_speed(0)
    await release(rig, tag)
    await rig.control.step(0.05)  # given back, and now being erased
    assert [e.state for e in await rig.extents()] == [ExtentState.SANITIZING]
    with pytest.raises(RefusedError):
        await rig.offered((0, 2 * GiB), host_ld=1)
    await rig.control.step(1)
    await rig.offered((0, 2 * GiB), host_ld=1)


async def test_no_offer_to_a_host_that_is_not_bound(rig: Rig) -> None:
    with pytest.raises(RefusedError):
        await rig.offered((0, GiB))
    with pytest.raises(RefusedError):
        await rig.offered((0, GiB), host_ld=99)


async def test_a_host_keeps_what_it_was_asked_for_until_it_gives_it_back(rig: Rig) -> None:
    await rig.attached(0)
    await rig.control.set_host("node-0", on_release="hold")
    tag = await rig.accepted((0, GiB))
    await release(rig, tag)
    await release(rig, tag)  # asking twice is asking once
    await rig.in_state(ExtentState.RELEASE_REQUESTED, tag)
    await rig.control.write("node-0", DCD, ld_id=0, address=0, data=SECRET)  # still the host's
    await rig.control.give_back("node-0", tag)
    await rig.gone(tag)


async def test_a_host_keeps_memory_that_is_online(rig: Rig) -> None:
    await rig.attached(0)
    tag = await rig.accepted((0, GiB))
    await rig.control.set_online("node-0", tag, online=True)
    await rig.control.set_speed(0)
    await release(rig, tag)
    await rig.control.step(3600)
    assert [e.state for e in await rig.extents()] == [ExtentState.RELEASE_REQUESTED]
    await rig.control.set_online("node-0", tag, online=False)
    await rig.control.step(3600)
    assert await rig.extents() == ()
    assert (await rig.control.host("node-0"))["machine_checks"] == 0


async def test_a_forced_release_takes_memory_that_is_online(rig: Rig) -> None:
    await rig.attached(0)
    tag = await rig.accepted((0, GiB))
    await rig.control.set_online("node-0", tag, online=True)
    await release(rig, tag, forced=True)
    with pytest.raises(RackControlError, match="nothing was given"):
        await rig.control.read("node-0", DCD, ld_id=0, address=0, size_bytes=1)
    assert (await rig.control.host("node-0"))["machine_checks"] == 1


async def test_releasing_what_is_not_there_is_refused(rig: Rig) -> None:
    await rig.attached(0)
    with pytest.raises(RefusedError) as refused:
        await release(rig, uuid4())
    assert refused.value.code == 0x000F


@pytest.mark.parametrize(
    ("base", "region", "sanitize", "left"),
    [
        pytest.param(0, 0, False, bytes(len(SECRET)), id="the region erases"),
        pytest.param(KEPT_DIRTY, 1, True, bytes(len(SECRET)), id="the command erases"),
        pytest.param(KEPT_DIRTY, 1, False, SECRET, id="nobody erases"),
    ],
)
async def test_the_next_host_meets_the_bytes_the_last_one_left(
    rig: Rig, base: int, region: int, sanitize: bool, left: bytes
) -> None:
    await rig.attached(0, 1)
    tag = await rig.accepted((base + GiB, GiB), region=region)
    await rig.control.write("node-0", DCD, ld_id=0, address=base + GiB, data=SECRET)
    await release(rig, tag, sanitize=sanitize)
    await rig.gone(tag)
    await rig.accepted((base, GiB), host_ld=1, region=region)
    assert await rig.control.read("node-1", DCD, ld_id=1, address=base, size_bytes=len(SECRET)) == left


async def test_an_erasure_that_fails_is_never_reported_as_done(rig: Rig) -> None:
    await rig.attached(0)
    tag = await rig.accepted((0, GiB))
    await rig.control.add_fault(FaultKind.SANITIZE_FAIL, component=DCD, count=None)
    await rig.control.set_speed(0)
    await release(rig, tag)
    await rig.control.step(60)
    assert [e.state for e in await rig.extents()] == [ExtentState.SANITIZING]
    await rig.control.put_faults()
    await rig.control.step(60)
    assert await rig.extents() == ()


async def test_unbinding_leaves_the_extents_and_takes_the_reach(rig: Rig) -> None:
    await rig.attached(0)
    tag = await rig.accepted((0, GiB))
    await rig.unbound(vcs=0, vppb=3)
    assert [e.tag for e in await rig.extents()] == [tag]
    with pytest.raises(RackControlError, match="not bound to node-0"):
        await rig.control.read("node-0", DCD, ld_id=0, address=0, size_bytes=1)
    with pytest.raises(RefusedError):
        await release(rig, tag)
    await release(rig, tag, forced=True)
    await rig.gone(tag)
