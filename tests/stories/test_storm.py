"""A crowd that listens and polls, while others claim."""

import asyncio
import re
import resource
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from tests.services import Service
from tests.stories.test_many_at_once import async_caller, put

STREAMS, POLLS = 500, 500
WRITERS, ROUNDS = 16, 4
CONNECTING_AT_ONCE = 50
DEADLINE_S = 60
SEQ = re.compile(rb'"seq":([0-9]+),"at"')


@pytest.fixture
def many_sockets() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 8192, hard))


class Reader:
    """Reads events over a socket of its own, and keeps every number that it was told, in the order of arrival."""

    def __init__(self, service: Service, since: int) -> None:
        self.address = urlsplit(service.url)
        self.token = service.token
        self.seen: list[int] = []
        self.reached = since
        self.connected = asyncio.Event()
        self.statuses: set[int] = set()

    async def connect(self, gate: asyncio.Semaphore) -> None:
        async with gate:
            self.socket, self.out = await asyncio.open_connection(self.address.hostname, self.address.port)

    async def ask(self, query: str, accept: str) -> dict[bytes, bytes]:
        """The answer's headers."""
        lines = (f"GET /v1/events?{query} HTTP/1.1", "Host: x", f"Accept: {accept}")
        self.out.write("\r\n".join((*lines, f"Authorization: Bearer {self.token}", "", "")).encode())
        status, *headers = (await self.socket.readuntil(b"\r\n\r\n")).split(b"\r\n")
        self.statuses.add(int(status.split()[1]))
        return {name.lower(): value for name, _, value in (line.partition(b": ") for line in headers)}

    def keep(self, numbers: list[int]) -> None:
        self.seen += numbers
        self.reached = self.seen[-1] if self.seen else self.reached

    async def stream(self, gate: asyncio.Semaphore, enough: Callable[[int], bool]) -> None:
        await self.connect(gate)
        await self.ask(f"since={self.reached}", "text/event-stream")
        self.connected.set()
        rest = b""
        while not enough(self.reached):
            *whole, rest = (rest + await self.socket.read(1 << 16)).split(b"\n\n")
            self.keep([int(found[1]) for message in whole if (found := SEQ.search(message))])
            assert not self.socket.at_eof(), rest
        self.out.close()

    async def poll(self, gate: asyncio.Semaphore, enough: Callable[[int], bool]) -> None:
        await self.connect(gate)
        self.connected.set()
        while not enough(self.reached):
            headers = await self.ask(f"since={self.reached}&wait=30&limit=1000", "application/json")
            page = await self.socket.readexactly(int(headers[b"content-length"]))
            self.keep([int(number) for number in SEQ.findall(page)])
        self.out.close()


async def test_a_thousand_readers_miss_nothing_while_sixteen_clients_claim(
    service: Service, many_sockets: None
) -> None:
    end: int | None = None

    def enough(reached: int) -> bool:
        return end is not None and reached >= end

    async with async_caller(service) as http, asyncio.timeout(DEADLINE_S):
        start: int = (await http.get("/events?limit=1")).json()["as_of"]
        readers = [Reader(service, start) for _ in range(STREAMS + POLLS)]
        gate = asyncio.Semaphore(CONNECTING_AT_ONCE)
        reading = [asyncio.create_task(reader.stream(gate, enough)) for reader in readers[:STREAMS]]
        reading += [asyncio.create_task(reader.poll(gate, enough)) for reader in readers[STREAMS:]]
        await asyncio.gather(*(reader.connected.wait() for reader in readers))

        async def write(writer: int) -> None:
            for n in range(ROUNDS):
                claimed = await put(http, f"w{writer}-{n}", pool="standard", size_bytes=1 << 30)
                assert claimed.status_code == 201, claimed.text
                released = await http.delete(f"/allocations/w{writer}-{n}")
                assert released.status_code == 204, released.text

        await asyncio.gather(*(write(n) for n in range(WRITERS)))
        told = 0
        since = start
        while told < WRITERS * ROUNDS:
            page = (await http.get(f"/events?since={since}&wait=5&limit=1000&type=allocation.released")).json()
            told, since = told + len(page["items"]), page["next_since"]
        end = since
        await put(http, "last", pool="standard", size_bytes=1 << 30)  # so that those who wait answer
        await asyncio.gather(*reading)
        assert set.union(*(reader.statuses for reader in readers)) == {200}
        expected = list(range(start + 1, end + 1))
        assert len(expected) >= 2 * WRITERS * ROUNDS
        assert all(reader.seen[: len(expected)] == expected for reader in readers)
        assert (await http.get("/invariants")).json()["violations"] == []
