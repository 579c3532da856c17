"""Many callers at once, over HTTP."""

import asyncio
import random
from collections import Counter
from typing import Any

import httpx

from fabric_manager.domain.units import GiB
from tests.services import Caller, Service

LD = 64 * GiB
SEED = 20261130


def async_caller(service: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"{service.url}/v1",
        headers={"Authorization": f"Bearer {service.token}"},
        timeout=30,
        limits=httpx.Limits(max_connections=128),
    )


async def put(http: httpx.AsyncClient, key: str, **wish: Any) -> httpx.Response:
    return await http.put(f"/allocations/{key}", json={"tenant": "analytics", "size_bytes": LD, "bind": False} | wish)


async def test_sixty_four_clients_for_eight_places_get_exactly_eight(service: Service) -> None:
    async with async_caller(service) as http:
        for n in range(8):  # eight of the device's sixteen logical devices are taken
            assert (await put(http, f"before-{n}", device="mld-0")).status_code == 201
        answers = await asyncio.gather(*(put(http, f"key-{n}", device="mld-0") for n in range(64)))
        statuses = Counter(answer.status_code for answer in answers)
        assert statuses == {201: 8, 409: 56}
        for answer in answers:
            if answer.status_code == 409:
                problem = answer.json()
                assert problem["code"] == "insufficient_capacity"
                assert problem["funnel"]
                assert problem["largest_fit_bytes"] == 0
        device = (await http.get("/devices/mld-0")).json()
        buckets = ("free_bytes", "allocated_bytes", "sanitizing_bytes", "quarantined_bytes", "withdrawn_bytes")
        assert sum(device[bucket] for bucket in buckets) == device["capacity_bytes"]
        assert (device["free_bytes"], device["allocated_bytes"]) == (0, 16 * LD)
        assert (await http.get("/invariants")).json()["violations"] == []


async def test_a_hundred_equal_puts_are_one_allocation(service: Service) -> None:
    async with async_caller(service) as http:
        answers = await asyncio.gather(*(put(http, "same") for _ in range(100)))
        assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 99}
        fields = ("key", "id", "size_bytes", "tenant")
        assert len({tuple(answer.json()[f] for f in fields) for answer in answers}) == 1
        assert len({str(answer.json()["segments"]) for answer in answers}) == 1
        other = await put(http, "same", size_bytes=GiB)
        assert other.status_code == 409
        assert other.json()["differs"] == [{"field": "size_bytes", "have": LD, "got": GiB}]
        assert (await http.delete("/allocations/same")).status_code == 204
        assert (await put(http, "same")).status_code == 410
        assert (await http.delete("/allocations/never-seen")).status_code == 204
        assert (await put(http, "never-seen")).status_code == 410


async def test_puts_lost_answers_and_deletes_in_any_order_leave_no_orphan(service: Service, caller: Caller) -> None:
    chance = random.Random(SEED)
    free_before = caller.get("/pools/high-performance")["free_bytes"]

    async def one_client(http: httpx.AsyncClient, key: str) -> None:
        """Ask, perhaps lose the answer, perhaps ask again; in the end give it back."""
        for _ in range(chance.randint(1, 3)):
            try:
                await asyncio.wait_for(
                    put(http, key, pool="high-performance", bind=True, host=f"node-{chance.randrange(8)}"),
                    timeout=chance.choice([0.005, 0.02, 5]),
                )
            except TimeoutError:
                continue
        await http.delete(f"/allocations/{key}")

    async with async_caller(service) as http:
        await asyncio.gather(*(one_client(http, f"orphan-{n}") for n in range(40)))
    for n in range(40):
        answer = caller.ask("GET", f"/allocations/orphan-{n}", expect=(200, 404))
        if answer["status"] != 404 if "status" in answer else True:
            caller.reaches(f"orphan-{n}", "released")
    assert caller.get("/pools/high-performance")["free_bytes"] == free_before
    assert caller.violations() == []


async def test_a_reader_that_follows_the_events_misses_nothing(service: Service) -> None:
    writers, rounds = 16, 6
    async with async_caller(service) as http:
        start = (await http.get("/events?limit=1")).json()["as_of"]
        seen: list[dict[str, Any]] = []

        async def follow() -> None:
            since = start
            released = 0
            while released < writers * rounds:
                page = (await http.get(f"/events?since={since}&wait=5&limit=50")).json()
                seen.extend(page["items"])
                released += sum(event["type"] == "allocation.released" for event in page["items"])
                since = page["items"][-1]["seq"] if page["items"] else since

        async def write(writer: int) -> None:
            for n in range(rounds):
                assert (await put(http, f"w{writer}-{n}")).status_code == 201
                await http.delete(f"/allocations/w{writer}-{n}")

        await asyncio.wait_for(asyncio.gather(follow(), *(write(n) for n in range(writers))), 60)
        numbers = [event["seq"] for event in seen]
        assert numbers == list(range(start + 1, start + 1 + len(numbers)))
        kinds = Counter(event["type"] for event in seen if (event["key"] or "").startswith("w"))
        assert kinds["allocation.reserved"] == kinds["allocation.released"] == writers * rounds
