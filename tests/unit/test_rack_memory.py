"""The byte store and the pool of physical blocks behave as a plain array would."""

from hypothesis import given
from hypothesis import strategies as st

from fabric_manager.southbound.simulator.memory import ByteStore, FreeBlocks, cut_runs

SIZE = 20_000  # a few pages
runs = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(lambda r: (r[0], min(r[1], SIZE - r[0])))
writes = st.tuples(st.just("write"), runs)
zeros = st.tuples(st.just("zero"), runs)


@given(st.lists(st.one_of(writes, zeros), max_size=12), runs)
def test_the_sparse_store_reads_like_an_array(steps: list[tuple[str, tuple[int, int]]], read: tuple[int, int]) -> None:
    store, array, kept = ByteStore(), bytearray(SIZE), ByteStore()
    for i, (step, (start, size)) in enumerate(steps, start=1):
        data = bytes([i]) * size if step == "write" else bytes(size)
        array[start : start + size] = data
        if step == "write":
            store.write(start, data)
        else:
            store.zero([(start, size)])
    for number, page in store.drain_touched():
        kept.load(number, page or bytes(4096))
    start, size = read
    assert store.read(read) == kept.read(read) == bytes(array[start : start + size])


@given(st.lists(st.integers(1, 40), max_size=12), st.sets(st.integers(0, 11)))
def test_no_block_is_handed_out_twice_and_none_is_lost(sizes: list[int], given_back: set[int]) -> None:
    blocks = FreeBlocks(100)
    held: dict[int, tuple[tuple[int, int], ...]] = {}
    for i, size in enumerate(sizes):
        if size <= blocks.free_bytes:
            held[i] = blocks.take(size)
    for i in given_back & held.keys():
        blocks.give_back(held.pop(i))
    bytes_held = [at for taken in held.values() for start, size in taken for at in range(start, start + size)]
    assert len(bytes_held) == len(set(bytes_held))
    assert blocks.free_bytes + len(bytes_held) == 100
    again = FreeBlocks(100, used=[run for taken in held.values() for run in taken])
    assert again.free_bytes == blocks.free_bytes
    assert again.take(again.free_bytes) == blocks.take(blocks.free_bytes)


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 50)), max_size=6), st.integers(0, 400))
def test_a_cut_loses_nothing(whole: list[tuple[int, int]], size: int) -> None:
    total = sum(n for _, n in whole)
    first, rest = cut_runs(whole, size)
    assert sum(n for _, n in first) == min(size, total)
    assert [at for s, n in first + rest for at in range(s, s + n)] == [at for s, n in whole for at in range(s, s + n)]
