"""The change feed: in order, without gaps, and awake as soon as something happens."""

import asyncio
import time

import sqlalchemy as sa

from fabric_manager.telemetry.metrics import PROCESS as REGISTRY_OF_PROCESS
from tests.api.conftest import Api
from tests.systems import eventually


async def numbered(api: Api, *, at_least: int = 0) -> int:
    """The head, once no event waits for its number any more."""
    async with asyncio.timeout(10):
        while True:
            await api.sequence()
            async with api.db.snapshot() as tx:
                left = (await tx.execute(sa.text("SELECT count(*) FROM event_outbox"))).scalar_one()
                head = int((await tx.execute(sa.text("SELECT seq FROM event_head"))).scalar_one())
            if left == 0 and head >= at_least:
                return head


async def waiting(count: int) -> None:
    """Return once `count` callers wait for a change."""

    async def look() -> float:
        return REGISTRY_OF_PROCESS.get_sample_value("fabric_manager_waiters") or 0

    await eventually(look, lambda found: found >= count)


async def test_events_carry_the_actor_and_the_request(api: Api) -> None:
    since = await numbered(api)
    await api.put("a", headers={"X-Request-Id": "trace-7"})
    await numbered(api, at_least=since + 1)
    page = (await api.http.get("/v1/events", params={"since": since, "kind": "allocation"})).json()
    (event,) = page["items"]
    assert (event["type"], event["key"]) == ("allocation.reserved", "a")
    assert (event["actor"], event["request_id"]) == ("admin", "trace-7")
    assert page["next_since"] == page["as_of"] >= event["seq"]


async def test_a_long_poll_answers_as_soon_as_an_event_is_there(api: Api) -> None:
    since = await numbered(api)
    polling = asyncio.create_task(api.http.get("/v1/events", params={"since": since, "wait": 30}))
    await waiting(1)
    began = time.monotonic()
    await api.put("a")
    page = (await asyncio.wait_for(polling, 10)).json()
    assert time.monotonic() - began < 1.5
    assert page["items"]


async def test_a_long_poll_without_news_answers_empty_and_can_go_on(api: Api) -> None:
    since = await numbered(api)
    page = (await api.http.get("/v1/events", params={"since": since, "wait": 1})).json()
    assert (page["items"], page["next_since"]) == ([], since)


async def test_a_waiter_outlives_the_loss_of_the_listening_connection(api: Api) -> None:
    since = await numbered(api)
    polling = asyncio.create_task(api.http.get("/v1/events", params={"since": since, "wait": 30}))
    await waiting(1)
    async with api.db.transaction() as tx:
        await tx.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%listener'"
                " AND datname = current_database()"
            )
        )
    await api.put("a")  # while nobody listens, or just again
    assert (await asyncio.wait_for(polling, 15)).json()["items"]


async def test_waiters_hold_no_database_connection(api: Api) -> None:
    since = await numbered(api)
    polls = [asyncio.create_task(api.http.get("/v1/events", params={"since": since, "wait": 30})) for _ in range(60)]
    await waiting(60)
    began = time.monotonic()
    assert (await api.put("a")).status_code == 201  # sixteen connections would all be taken
    assert time.monotonic() - began < 2
    pages = [(await asyncio.wait_for(poll, 15)).json() for poll in polls]
    assert all(page["items"] for page in pages)


async def test_numbers_that_are_no_longer_kept_are_410_with_the_oldest(api: Api) -> None:
    head = await numbered(api)
    async with api.db.transaction() as tx:
        await tx.execute(sa.text("UPDATE event_head SET oldest_seq = 3"))
    gone = await api.http.get("/v1/events", params={"since": 1})
    assert (gone.status_code, gone.json()["code"], gone.json()["oldest_seq"]) == (410, "events_expired", 3)
    assert (await api.http.get("/v1/events", params={"since": 2})).status_code == 200
    assert (await api.http.get("/v1/events")).json()["items"][0]["seq"] == 3
    ahead = await api.http.get("/v1/events", params={"since": head + 1000})
    assert (ahead.status_code, ahead.json()["head_seq"]) == (410, head)


async def test_a_tailing_reader_under_sixteen_writers_sees_every_event_once(api: Api) -> None:
    since = start = await numbered(api)
    writing = True
    seen: list[int] = []

    async def write(writer: int) -> None:
        for n in range(12):
            await api.put(f"w{writer}-{n}", size_bytes=1 << 30, attachment="dynamic-capacity")
            await api.http.delete(f"/v1/allocations/w{writer}-{n}")

    async def tail() -> None:
        nonlocal since
        while True:
            params = {"since": since, "wait": 1, "limit": 50}
            page = (await api.http.get("/v1/events", params=params)).json()
            seen.extend(event["seq"] for event in page["items"])
            since = page["next_since"]
            if not writing and not page["items"]:
                return

    tailing = asyncio.create_task(tail())
    await asyncio.gather(*(write(n) for n in range(16)))
    head = await numbered(api)
    writing = False
    await asyncio.wait_for(tailing, 20)
    assert seen == list(range(start + 1, head + 1))
    assert len(seen) >= 2 * 16 * 12


async def test_a_page_of_a_list_says_where_to_watch_from(api: Api) -> None:
    await numbered(api)
    listed = await api.http.get("/v1/allocations")
    assert int(listed.headers["fabric-seq"]) == listed.json()["as_of"]
    await api.put("a")
    await numbered(api, at_least=listed.json()["as_of"] + 1)
    page = (await api.http.get("/v1/events", params={"since": listed.json()["as_of"]})).json()
    assert [event["key"] for event in page["items"]].count("a") == 1
