"""Reads and turns that a crowd shares."""

import asyncio

import pytest

from fabric_manager.api.sharing import SharedReads, Turns


async def test_a_read_is_one_for_all_who_asked_before_it_began() -> None:
    reads, begun, go_on = SharedReads(at_once_max=1), 0, asyncio.Event()

    async def read() -> int:
        nonlocal begun
        begun += 1
        mine = begun
        await go_on.wait()
        return mine

    first = asyncio.create_task(reads.read(read, same="a"))
    await asyncio.sleep(0.01)  # it has begun: whoever asks now may want what happened since
    later = [asyncio.create_task(reads.read(read, same="a")) for _ in range(50)]
    go_on.set()
    assert await first == 1
    assert await asyncio.gather(*later) == [2] * 50


async def test_few_reads_go_on_at_once_and_one_that_fails_makes_room() -> None:
    reads, now, most = SharedReads(at_once_max=3), 0, 0

    async def read() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        raise ValueError("no")

    answers = await asyncio.gather(*(reads.read(read) for _ in range(20)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {ValueError}
    assert most == 3


async def test_a_reader_that_leaves_does_not_take_the_read_from_the_others() -> None:
    reads = SharedReads()

    async def read() -> str:
        await asyncio.sleep(0.05)
        return "read"

    leaving, staying = (asyncio.create_task(reads.read(read, same="a")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await staying == "read"


async def test_turns_are_free_at_first_then_paced_and_never_longer_than_asked() -> None:
    turns, clock = Turns(per_s_max=100, burst_max=10), asyncio.get_running_loop().time
    began = clock()
    for _ in range(10):
        await turns.turn(1)
    assert clock() - began < 0.05
    await asyncio.gather(*(turns.turn(5) for _ in range(20)))
    assert clock() - began >= 0.15
    began = clock()
    await asyncio.gather(*(turns.turn(0.01) for _ in range(200)))
    assert clock() - began < 1
