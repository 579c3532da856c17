"""Holding capacity: reserve, bind, report, release, wait."""

import asyncio
import math
from collections.abc import AsyncIterator, Collection, Sequence

from fabric_manager.client import reading
from fabric_manager.client.nouns import Noun, path_of
from fabric_manager.client.reading import read
from fabric_manager.client.transport import Call, QueryValue, Transport, json_of
from fabric_manager.client.values import (
    Allocation,
    AllocationRequest,
    Candidates,
    Document,
    Placed,
    SegmentState,
    Timeline,
)

HOLD_S_MAX = 30  # the service holds no answer longer
PAUSE_BETWEEN_LOOKS_S = 0.05
ENDS = frozenset({"failed", "quarantined", "lost", "released"})  # nothing follows without a new request


class Allocations:
    """Each verb may be repeated: the caller names the key, and a replay answers what the key stands for by now."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._noun = Noun(transport, "allocations")

    async def put(self, key: str, request: AllocationRequest, *, wait_s: int = 0) -> Placed:
        """Reserve, and bind when the request names a host. Waits up to 30 s for the outcome when asked to."""
        hold_s = min(wait_s, HOLD_S_MAX)
        headers = {"Prefer": f"wait={hold_s}"} if hold_s else {}
        path = path_of("allocations", key)
        call = Call(method="PUT", path=path, body=request.body(), headers=headers, hold_s=hold_s)
        response = await self._transport.send(call)
        return Placed(allocation=read(reading.allocation, json_of(response)), replayed=response.status_code != 201)

    async def create(self, request: AllocationRequest, *, idempotency_key: str, wait_s: int = 0) -> Placed:
        """Reserve under a key that the service makes. The same `idempotency_key` is the same allocation: make a new
        one for each, so that a lost answer can be asked for again.
        """
        hold_s = min(wait_s, HOLD_S_MAX)
        headers = {"Idempotency-Key": idempotency_key} | ({"Prefer": f"wait={hold_s}"} if hold_s else {})
        call = Call(method="POST", path=path_of("allocations"), body=request.body(), headers=headers, hold_s=hold_s)
        response = await self._transport.send(call)
        return Placed(allocation=read(reading.allocation, json_of(response)), replayed=response.status_code != 201)

    async def candidates(self, request: AllocationRequest) -> Candidates:
        """Where the request would go now, and why; or the refusal it would get. Nothing is written."""
        call = Call(method="POST", path=path_of("allocation-candidates"), body=request.body())
        return read(reading.candidates, json_of(await self._transport.send(call)))

    async def get(self, key: str) -> Allocation:
        return read(reading.allocation, await self._noun.get(key))

    async def list(self, **filters: QueryValue) -> list[Allocation]:
        return [each async for each in self.iterate(**filters)]

    async def iterate(self, **filters: QueryValue) -> AsyncIterator[Allocation]:
        async for document in self._noun.iterate(filters):
            yield read(reading.allocation, document)

    async def delete(self, key: str) -> Allocation | None:
        """Give the capacity back. None when it is over, the allocation while hardware or host still has to let go.

        An unknown key is remembered, so that a PUT still under way is refused when it arrives.
        """
        response = await self._transport.send(Call(method="DELETE", path=path_of("allocations", key)))
        return None if response.status_code == 204 else read(reading.allocation, json_of(response))

    async def bind(self, key: str, *, host: str) -> Allocation:
        return await self._change("PUT", path_of("allocations", key, "binding"), {"host": host})

    async def unbind(self, key: str) -> Allocation:
        """Take the memory from the host and keep the reservation."""
        return await self._change("DELETE", path_of("allocations", key, "binding"), None)

    async def node_state(
        self, key: str, *, boot_id: str, segments: Sequence[SegmentState], epoch: int | None = None
    ) -> Allocation:
        """Tell what the host does with the memory. Bring it up only when reporting `online` came back without error."""
        body: dict[str, object] = {"boot_id": boot_id, "segments": [each.body() for each in segments]}
        if epoch is not None:
            body["epoch"] = epoch
        return await self._change("POST", path_of("allocations", key, "node-state"), body)

    async def timeline(self, key: str) -> Timeline:
        """Everything that happened to the key, in order, also when it was only ever refused."""
        call = Call(method="GET", path=path_of("allocations", key, "timeline"))
        return read(reading.timeline, json_of(await self._transport.send(call)))

    async def wait_for(self, key: str, phases: Collection[str], *, wait_s: float) -> Allocation:
        """The allocation once in one of `phases`, or ended otherwise, or when time is over: look at its `phase`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        stops = sorted(ENDS.union(phases))
        while True:
            hold_s = min(max(math.ceil(end - loop.time()), 0), HOLD_S_MAX)
            query: dict[str, QueryValue] = {"wait": hold_s, "phase": stops} if hold_s else {}
            allocation = read(reading.allocation, await self._noun.get(key, query=query, hold_s=hold_s))
            if allocation.phase in stops or loop.time() >= end:
                return allocation
            await asyncio.sleep(PAUSE_BETWEEN_LOOKS_S)

    async def _change(self, method: str, path: str, body: Document | None) -> Allocation:
        response = await self._transport.send(Call(method=method, path=path, body=body))
        return read(reading.allocation, json_of(response))
