"""The bytes of the rack's devices: sparse, so that a terabyte nobody wrote to costs nothing."""

from collections.abc import Iterable, Iterator, Sequence

PAGE_BYTES = 4096
Run = tuple[int, int]  # physical start and size, in bytes


class ByteStore:
    """One device's physical memory. Bytes never written, or zeroed, read as zero."""

    def __init__(self) -> None:
        self._pages: dict[int, bytes] = {}
        self._touched: set[int] = set()  # pages changed since they were last handed to the kept state

    def read(self, run: Run) -> bytes:
        return b"".join(self._page(n)[low:high] for n, low, high in _pieces(run))

    def write(self, start_bytes: int, data: bytes) -> None:
        at = 0
        for n, low, high in _pieces((start_bytes, len(data))):
            page = self._page(n)
            self._put(n, page[:low] + data[at : at + high - low] + page[high:])
            at += high - low

    def zero(self, runs: Iterable[Run]) -> None:
        for start, size in runs:
            first, last = start // PAGE_BYTES, (start + size - 1) // PAGE_BYTES
            # Only pages that exist are worth visiting: the run may be a terabyte.
            for n in [n for n in self._pages if first <= n <= last]:
                low = max(start - n * PAGE_BYTES, 0)
                high = min(start + size - n * PAGE_BYTES, PAGE_BYTES)
                page = self._pages[n]
                self._put(n, page[:low] + bytes(high - low) + page[high:])

    def load(self, page_number: int, page: bytes) -> None:
        self._pages[page_number] = page

    def drain_touched(self) -> Iterator[tuple[int, bytes | None]]:
        """Each page changed since the last call; None for one that is all zero again."""
        touched, self._touched = self._touched, set()
        for n in sorted(touched):
            yield n, self._pages.get(n)

    def _page(self, n: int) -> bytes:
        return self._pages.get(n, bytes(PAGE_BYTES))

    def _put(self, n: int, page: bytes) -> None:
        self._touched.add(n)
        if any(page):
            self._pages[n] = page
        else:
            self._pages.pop(n, None)


def _pieces(run: Run) -> Iterator[tuple[int, int, int]]:
    """The run cut at page boundaries: page number, first byte, byte after the last, both within the page."""
    at, end = run[0], run[0] + run[1]
    while at < end:
        n, low = divmod(at, PAGE_BYTES)
        high = min(PAGE_BYTES, low + end - at)
        yield n, low, high
        at += high - low


class FreeBlocks:
    """Physical memory no extent holds. The lowest is handed out first, so a next tenant meets the last one's bytes."""

    def __init__(self, size_bytes: int, *, used: Iterable[Run] = ()) -> None:
        self._free: list[Run] = []
        at = 0
        for start, size in sorted(used):
            if start > at:
                self._free.append((at, start - at))
            at = start + size
        if at < size_bytes:
            self._free.append((at, size_bytes - at))

    @property
    def free_bytes(self) -> int:
        return sum(size for _, size in self._free)

    def take(self, size_bytes: int) -> tuple[Run, ...]:
        """The caller has checked `free_bytes`."""
        taken, self._free = cut_runs(self._free, size_bytes)
        return tuple(taken)

    def give_back(self, runs: Iterable[Run]) -> None:
        merged: list[Run] = []
        for start, size in sorted([*self._free, *runs]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((start, size))
        self._free = merged


def cut_runs(runs: Sequence[Run], size_bytes: int) -> tuple[list[Run], list[Run]]:
    """The first `size_bytes` of `runs`, and what is left of them."""
    first: list[Run] = []
    for i, (start, size) in enumerate(runs):
        if size_bytes < size:
            head = [(start, size_bytes)] if size_bytes else []
            return first + head, [(start + size_bytes, size - size_bytes), *runs[i + 1 :]]
        first.append((start, size))
        size_bytes -= size
    return first, []
