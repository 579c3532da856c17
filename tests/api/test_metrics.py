"""What a scrape says, over real HTTP, and that it says nothing about whom the memory is for."""

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from uuid import UUID

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from fabric_manager.api import metrics
from fabric_manager.domain.actor import Role
from fabric_manager.telemetry.metrics import PROCESS
from tests.api.conftest import ADMIN_TOKEN, Api, serving

SCRAPE_S_MAX = 3.0
KEY = "the-key-of-a-claim:1"


def samples_of(answer: httpx.Response) -> list[Sample]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]


def value(samples: list[Sample], name: str, **labels: str) -> float:
    (found,) = [s.value for s in samples if s.name == name and labels.items() <= s.labels.items()]
    return float(found)


def counted(name: str, labels: Mapping[str, str] | None = None) -> float:
    """This process's counter now: other tests have counted before."""
    return PROCESS.get_sample_value(name, dict(labels or {})) or 0.0


async def scrape(api: Api) -> list[Sample]:
    return samples_of(await api.http.get("/metrics"))


async def test_any_role_may_scrape_and_nobody_else(api: Api) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        refused = await nobody.get("/metrics")
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    viewer = await api.token(Role.VIEWER)
    samples_of(await api.http.get("/metrics", headers=viewer))


async def test_an_address_of_its_own_asks_for_nothing_and_has_nothing_else(api: Api) -> None:
    async with serving(metrics.apart(api.db)) as url, httpx.AsyncClient(base_url=url) as nobody:
        assert value(samples_of(await nobody.get("/metrics")), "fabric_manager_database_up") == 1
        for path in ("/v1/pools", "/docs", "/openapi.json", "/"):
            assert (await nobody.get(path)).status_code == 404


async def test_the_buckets_of_a_pool_sum_to_its_capacity(api: Api) -> None:
    await api.bound("a")
    samples = await scrape(api)
    for pool in (await api.http.get("/v1/pools")).json()["items"]:
        buckets = [s for s in samples if s.name == "fabric_manager_memory_bytes" and s.labels["pool"] == pool["name"]]
        assert len(buckets) == 5
        assert sum(s.value for s in buckets) == pool["capacity_bytes"]
    allocated = [s.value for s in samples if s.labels.get("bucket") == "allocated"]
    assert sum(allocated) == 64 << 30


async def test_a_refusal_is_counted_by_its_code(api: Api) -> None:
    code = (await api.put("r-0", size_bytes=1 << 50)).json()["code"]
    before = counted("fabric_manager_refusals_total", {"code": code})
    for number in (1, 2):
        assert (await api.put(f"r-{number}", size_bytes=1 << 50)).json()["code"] == code
    samples = await scrape(api)
    assert value(samples, "fabric_manager_refusals_total", code=code) == before + 2
    assert value(samples, "fabric_manager_problems_total", code=code) >= 2


async def test_unfinished_operations_have_a_number_and_an_age(api: Api) -> None:
    await api.put("a", host="node-0")
    samples = await scrape(api)
    assert value(samples, "fabric_manager_operations", goal="bind", state="pending") == 1
    assert value(samples, "fabric_manager_operation_oldest_age_seconds", goal="bind") >= 0


async def test_events_not_numbered_yet_are_the_lag(api: Api) -> None:
    before = await scrape(api)
    assert value(before, "fabric_manager_events_waiting") == 0
    async with api.db.transaction() as tx:
        await tx.exec_driver_sql(
            "INSERT INTO event_outbox (at, type, object_kind, object_id, actor)"
            " VALUES (now() - interval '1 minute', 'pool.changed', 'pool', 'x', 'test')"
        )
    late = await scrape(api)
    assert value(late, "fabric_manager_events_waiting") == 1
    assert value(late, "fabric_manager_events_waiting_age_seconds") >= 60
    await api.sequence()
    after = await scrape(api)
    assert value(after, "fabric_manager_events_waiting") == 0
    assert value(after, "fabric_manager_events_total") == value(before, "fabric_manager_events_total") + 1


async def test_requests_are_counted_by_operation_and_never_by_path(api: Api) -> None:
    labels = {"operation": "get_allocation", "method": "GET", "status": "4xx"}
    before = counted("fabric_manager_http_requests_total", labels)
    for number in range(3):
        await api.http.get(f"/v1/allocations/unknown-{number}")
    await api.http.get("/no/such/path")
    await api.http.request("BREW", "/healthz")
    samples = await scrape(api)
    assert value(samples, "fabric_manager_http_requests_total", **labels) == before + 3
    assert value(samples, "fabric_manager_http_requests_total", operation="none", method="GET", status="4xx") >= 1
    assert {s.labels["method"] for s in samples if "method" in s.labels} <= {
        *("GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "other"),
    }
    assert (
        value(samples, "fabric_manager_http_request_duration_seconds_count", operation="get_allocation", method="GET")
        >= 3
    )


async def test_a_stream_is_a_listener_as_long_as_it_is_open(api: Api) -> None:
    before = counted("fabric_manager_event_listeners")
    async with api.http.stream("GET", "/v1/events", headers={"Accept": "text/event-stream"}) as stream:
        await anext(stream.aiter_bytes())
        assert counted("fabric_manager_event_listeners") == before + 1
        assert counted("fabric_manager_waiters") >= 1
    async with asyncio.timeout(5):
        while counted("fabric_manager_event_listeners") != before:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)


async def test_no_label_says_whom_or_what_it_is_for(api: Api) -> None:
    consumer = {"kind": "ResourceClaim", "cluster": "secret-cluster", "namespace": "ns", "name": "n", "uid": "uid-77"}
    allocation = await api.bound(KEY, tenant="secret-tenant", consumer=consumer)
    await api.http.delete(f"/v1/allocations/{KEY}")
    samples = await scrape(api)
    labels = {text for sample in samples for text in sample.labels.values()}
    private = [KEY, "secret-tenant", "secret-cluster", "uid-77", "node-0", allocation["id"], ADMIN_TOKEN, "admin"]
    assert [word for word in private if any(word in text for text in labels)] == []


async def test_connections_in_use_are_told(api: Api) -> None:
    async with api.db.snapshot():
        samples = await scrape(api)
    assert value(samples, "fabric_manager_database_connections", use="rows", state="busy") >= 1
    assert value(samples, "fabric_manager_database_connections_max", use="verbs") == 16
    assert value(samples, "fabric_manager_database_waiters", use="rows") == 0


@pytest.mark.parametrize("silent", [False, True], ids=["refuses", "silent"])
async def test_without_the_database_the_process_still_tells_of_itself(
    api: Api, identities: Callable[[], UUID], monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    await scrape(api)
    fresh = await api.token(Role.VIEWER)
    api.app.state.services.tokens._kept.clear()
    with socket.create_server(("127.0.0.1", 0)) as black_hole:
        port = black_hole.getsockname()[1] if silent else 9
        await api.db.close()
        monkeypatch.setattr(api.db, "url", f"postgresql://postgres@127.0.0.1:{port}/none")
        began = time.monotonic()
        samples = await scrape(api)
        assert time.monotonic() - began < SCRAPE_S_MAX
        assert value(samples, "fabric_manager_database_up") == 0
        assert not [s for s in samples if s.name == "fabric_manager_memory_bytes"]
        assert [s for s in samples if s.name == "fabric_manager_http_requests_total"]
        unknown = await api.http.get("/metrics", headers=fresh)
        assert (unknown.status_code, unknown.json()["code"]) == (503, "database_unavailable")
