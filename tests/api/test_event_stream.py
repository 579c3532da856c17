"""Events as a stream: resumable, filtered, bounded, and the same for however many listeners."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from fabric_manager.api import answers, event_stream, telling
from fabric_manager.api.application import stop_waiting
from fabric_manager.api.event_stream import prefers_stream
from fabric_manager.api.feed import Feed
from fabric_manager.client import FabricManager
from fabric_manager.client.messages import Message, messages
from fabric_manager.domain.actor import Role
from fabric_manager.domain.units import GiB
from fabric_manager.store import events, work
from tests.api.conftest import ADMIN_TOKEN, Api
from tests.api.test_events import numbered

STREAM = {"Accept": "text/event-stream"}
DEADLINE_S = 15
LARGE = "x" * 100_000


@contextlib.asynccontextmanager
async def listening(
    api: Api, *, headers: dict[str, str] | None = None, **query: Any
) -> AsyncIterator[AsyncGenerator[Message, None]]:
    """The messages of a stream that was answered with 200."""
    async with (
        asyncio.timeout(DEADLINE_S),
        api.http.stream("GET", "/v1/events", params=query, headers=STREAM | (headers or {})) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        async with contextlib.aclosing(messages(answer.aiter_bytes())) as told:
            yield told


async def until_key(told: AsyncIterator[Message], key: str) -> list[Message]:
    """What comes up to and with the first event of `key`."""
    seen = []
    async for message in told:
        seen.append(message)
        if json.loads(message.data).get("key") == key:
            return seen
    raise AssertionError(f"the stream ended without {key}: {seen}")


async def record(api: Api, key: str, *, text: str = "") -> None:
    """An event of a test's own, numbered at once."""
    query = sa.text(
        "SELECT record_event('test.event', 'test', :key, '{\"actor\": \"test\"}', NULL,"
        " jsonb_build_object('text', cast(:text AS text)), jsonb_build_object('key', cast(:key AS text)))"
    )
    async with api.db.transaction() as tx:
        await tx.execute(query, {"key": key, "text": text})
    await api.sequence()


async def becomes(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not so():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.02)


async def tail_reaches(api: Api, seq: int) -> Feed:
    feed: Feed = api.app.state.services.feed
    async with asyncio.timeout(DEADLINE_S):
        while feed.tail.head is None or feed.tail.head < seq:
            await api.sequence()
            await asyncio.sleep(0.02)
    return feed


async def test_a_listener_hears_what_pages_show_in_the_same_words(api: Api) -> None:
    since = await numbered(api)
    async with listening(api, since=since) as told:
        await api.put("a", host="node-0")
        heard = await until_key(told, "a")
    page = (await api.http.get("/v1/events", params={"since": since})).json()["items"]
    assert [json.loads(message.data) for message in heard] == page[: len(heard)]
    assert [(message.id, message.event) for message in heard] == [
        (str(e["seq"]), e["type"]) for e in page[: len(heard)]
    ]
    assert page[0]["tenant"] == "analytics"


async def test_a_listener_resumes_where_it_was_cut_off(api: Api) -> None:
    since = await numbered(api)
    for n in range(5):
        await record(api, f"k{n}")
    async with listening(api, since=since) as told:
        first = (await until_key(told, "k1"))[-1]
    async with listening(api, since=since, headers={"Last-Event-ID": first.id}) as told:  # the header goes first
        await record(api, "later")
        rest = await until_key(told, "later")
    assert [message.id for message in rest] == [str(int(first.id) + n) for n in range(1, len(rest) + 1)]


async def test_a_listener_far_behind_is_brought_up_from_the_store(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MESSAGES_MAX", 3)
    since = await numbered(api)
    for n in range(10):
        await record(api, f"k{n}")
    feed = await tail_reaches(api, since + 10)
    feed.tail._told.clear()  # nothing is in memory, as after a long absence
    async with listening(api, since=since) as told:
        heard = await until_key(told, "k9")
        await record(api, "live")
        heard += await until_key(told, "live")
    assert [message.id for message in heard] == [str(since + n) for n in range(1, len(heard) + 1)]


async def test_without_a_number_it_begins_now_and_says_where_that_is(api: Api) -> None:
    head = await numbered(api)
    async with listening(api) as told:
        first = await anext(told)
        assert (first.event, first.id, json.loads(first.data)) == ("bookmark", str(head), {"seq": head})
        await record(api, "new")
        assert [message.id for message in await until_key(told, "new")] == [str(head + 1)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"kind": "allocation"}, {"red", "blue"}),
        ({"kind": ["host", "fabric"]}, set()),
        ({"type": "allocation.reserved"}, {"red", "blue"}),
        ({"type": "allocation.bound"}, set()),
        ({"key": "red"}, {"red"}),
        ({"tenant": "blue"}, {"blue"}),
        ({"host": "node-0"}, {"red"}),
        ({"device": "mld-0"}, {"blue"}),
        ({"pool": "dcds"}, {"red"}),
        ({"cluster": "prod"}, {"red"}),
        ({"claim_uid": "uid-1"}, {"red"}),
        ({"cluster": "prod", "pool": "mlds"}, set()),
    ],
)
async def test_pages_polls_and_streams_take_the_same_filters(
    api: Api, query: dict[str, Any], expected: set[str]
) -> None:
    since = await numbered(api)
    consumer = {"kind": "ResourceClaim", "cluster": "prod", "namespace": "n", "name": "c", "uid": "uid-1"}
    red = await api.put("red", tenant="red", host="node-0", pool="dcds", size_bytes=GiB, consumer=consumer)
    blue = await api.put("blue", tenant="blue", pool="mlds")
    assert (red.status_code, blue.status_code) == (201, 201), (red.text, blue.text)
    await record(api, "end")
    end = await numbered(api)
    await tail_reaches(api, end)
    page = (await api.http.get("/v1/events", params={"since": since, **query})).json()
    polled = (await api.http.get("/v1/events", params={"since": since, "wait": 1, **query})).json()
    assert {event["key"] for event in page["items"] if event["object_kind"] != "tenant"} == expected
    assert polled["items"] == page["items"]
    assert page["next_since"] == end
    told_of = [str(event["seq"]) for event in page["items"]]
    async with listening(api, since=since, **query) as told:
        assert [(await anext(told)).id for _ in told_of] == told_of


async def test_a_filtered_listener_gets_bookmarks_and_need_not_search_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "BOOKMARK_S", 0.2)
    since = await numbered(api)
    async with listening(api, since=since, key="nobody") as told:
        await record(api, "other")
        head = await numbered(api, at_least=since + 1)
        marked = 0
        while marked < head:
            message = await anext(told)
            assert message.event == "bookmark"
            marked = int(message.id)
    assert marked == head


async def test_a_quiet_stream_is_kept_alive(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "BOOKMARK_S", 0.1)
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.2)
    since = await numbered(api)
    async with (
        asyncio.timeout(DEADLINE_S),
        api.http.stream("GET", f"/v1/events?since={since}", headers=STREAM) as answer,
    ):
        heard = b""
        async for chunk in answer.aiter_bytes():
            heard += chunk
            if heard.count(b": keep-alive\n\n") == 3:
                return


async def test_numbers_that_are_gone_or_never_were_are_refused_before_the_stream_begins(api: Api) -> None:
    head = await numbered(api)
    async with api.db.transaction() as tx:
        await tx.execute(sa.text("UPDATE event_head SET oldest_seq = 3"))
    gone = await api.http.get("/v1/events", params={"since": 1}, headers=STREAM)
    assert (gone.status_code, gone.json()["code"], gone.json()["oldest_seq"]) == (410, "events_expired", 3)
    ahead = await api.http.get("/v1/events", headers=STREAM | {"Last-Event-ID": str(head + 9)})
    assert (ahead.status_code, ahead.json()["head_seq"]) == (410, head)
    for wrong in ("x", "-1", "9" * 17):
        refused = await api.http.get("/v1/events", headers=STREAM | {"Last-Event-ID": wrong})
        assert (refused.status_code, refused.json()["code"]) == (422, "validation_failed")


async def test_a_bounded_token_hears_only_its_own(api: Api) -> None:
    since = await numbered(api)
    red = await api.token(Role.TENANT, tenant="red")
    async with listening(api, since=since, headers=red) as told:
        await api.put("theirs", tenant="blue", pool="dcds", size_bytes=GiB)
        await api.put("mine", tenant="red", pool="dcds", size_bytes=GiB)
        heard = await until_key(told, "mine")
    documents = [json.loads(message.data) for message in heard if message.event != "bookmark"]
    assert {(document["tenant"], document["key"]) for document in documents} == {("red", None), ("red", "mine")}
    nothing = await api.http.get("/v1/events", params={"since": since, "tenant": "blue"}, headers=red)
    assert nothing.json()["items"] == []


async def test_a_listener_that_is_too_slow_is_told_to_resume_and_blocks_nobody(api: Api) -> None:
    since = await numbered(api)
    feed = await tail_reaches(api, since)
    feed.tail.events_max = 10
    reader, writer = await asyncio.open_connection(*api.url.removeprefix("http://").split(":"), limit=1 << 16)
    request = f"GET /v1/events?since={since} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
    writer.write(f"{request}Authorization: Bearer {ADMIN_TOKEN}\r\nConnection: close\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    async with listening(api, since=since) as told:
        for n in range(120):  # more than all buffers on the way hold
            await record(api, f"k{n}", text=LARGE)
            await until_key(told, f"k{n}")  # the quick one is never behind
    async with asyncio.timeout(DEADLINE_S):
        rest = await reader.read(-1)  # now it reads, to the end
    writer.close()
    last = rest.decode().split("event: ")[-1]
    assert last.startswith("resync\n")
    reached = json.loads(last.split("data: ")[1].split("\n")[0])["seq"]
    assert since < reached < since + 120
    assert rest.count(b"event: test.event") == reached - since
    async with listening(api, headers={"Last-Event-ID": str(reached)}) as told:
        heard = await until_key(told, "k119")
    assert [message.id for message in heard] == [str(n) for n in range(reached + 1, since + 121)]


async def test_streams_end_at_once_when_the_service_stops(api: Api) -> None:
    since = await numbered(api)

    async def listen() -> None:
        async with listening(api, since=since, key="nobody") as told:
            async for _ in told:
                pass

    listeners = [asyncio.create_task(listen()) for _ in range(20)]
    feed: Feed = api.app.state.services.feed
    await becomes(lambda: feed._waiters == 20)
    stop_waiting(api.app)
    async with asyncio.timeout(2):
        await asyncio.gather(*listeners)


async def test_a_reader_that_leaves_is_forgotten(api: Api) -> None:
    since = await numbered(api)
    feed: Feed = api.app.state.services.feed
    async with listening(api, since=since):
        await becomes(lambda: feed._waiters == 1)
    await becomes(lambda: feed._waiters == 0)


async def test_many_listeners_are_one_database_listener_hold_no_connection_and_share_what_is_encoded(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = await numbered(api)
    encoded: list[int] = []

    def encode(body: dict[str, Any]) -> bytes:
        encoded.append(body["seq"])
        return answers.encode(body)

    monkeypatch.setattr(telling, "encode", encode)
    count = sa.text(
        """SELECT count(*) FILTER (WHERE application_name = 'fabric-manager listener') AS listening, count(*) AS all
           FROM pg_stat_activity WHERE datname = current_database()"""
    )
    ready = asyncio.Semaphore(0)

    async def listen() -> list[str]:
        async with listening(api, since=since) as told:
            ready.release()
            return [message.id for message in await until_key(told, "last")]

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=40) as many:
        many.base_url, many.headers["Authorization"] = httpx.URL(api.url), f"Bearer {ADMIN_TOKEN}"
        api.http, single = many, api.http
        listeners = [asyncio.create_task(listen()) for _ in range(60)]
        for _ in listeners:
            await ready.acquire()
        async with api.db.snapshot() as tx:
            found = (await tx.execute(count)).one()
        assert found.listening == 1
        assert found.all <= 1 + 2 * 16
        assert (await single.put("/v1/allocations/a", json={"tenant": "t", "size_bytes": 64 * GiB})).status_code == 201
        await record(api, "last")
        heard = await asyncio.gather(*listeners)
        api.http = single
    assert {tuple(ids) for ids in heard} == {tuple(str(since + n) for n in range(1, len(heard[0]) + 1))}
    assert sorted(encoded) == [int(each) for each in heard[0]]


async def test_old_partitions_go_and_their_numbers_are_410(api: Api) -> None:
    await numbered(api)
    async with api.db.transaction() as tx:
        for statement in (
            "DROP TABLE event_0",
            "UPDATE event_head SET seq = 0, oldest_seq = 1, partition_rows = 10",
        ):
            await tx.execute(sa.text(statement))
    for n in range(35):
        await record(api, f"k{n}")
    done = [await work.expire_events(api.db, keep=12, grace_s=0) for _ in range(4)]
    assert done == [{"oldest_seq": 20}, {"dropped": "event_0"}, {"dropped": "event_1"}, None]
    assert (await api.http.get("/v1/events", params={"since": 18})).json()["oldest_seq"] == 20
    kept = (await api.http.get("/v1/events", params={"since": 19})).json()["items"]
    assert [event["seq"] for event in kept] == list(range(20, 36))
    assert (await api.http.get("/v1/events", params={"since": 18}, headers=STREAM)).status_code == 410
    assert (await api.http.get("/v1/invariants")).json()["violations"] == []


async def test_a_partition_in_use_is_not_waited_for_and_a_reader_keeps_its_view(api: Api) -> None:
    await numbered(api)
    async with api.db.transaction() as tx:
        await tx.execute(sa.text("DROP TABLE event_0"))
        await tx.execute(sa.text("UPDATE event_head SET seq = 0, oldest_seq = 1, partition_rows = 10"))
    for n in range(25):
        await record(api, f"k{n}")
    async with api.db.snapshot() as reader:
        before = await events.kept(reader)
        assert await work.expire_events(api.db, keep=2, grace_s=60) == {"oldest_seq": 20}
        assert await work.expire_events(api.db, keep=2, grace_s=60) is None  # the reader's view may still need them
        rows = await reader.execute(
            sa.text("SELECT count(*) FROM event WHERE seq >= :oldest"), {"oldest": before.oldest}
        )
        assert rows.scalar_one() == 25
        with pytest.raises(Exception, match="same rows"):
            await work.expire_events(api.db, keep=2, grace_s=0)
    assert await work.expire_events(api.db, keep=2, grace_s=0) == {"dropped": "event_0"}


async def test_the_client_follows_a_stream_and_resumes_it(api: Api) -> None:
    since = await numbered(api)
    seen: list[int] = []

    async def follow() -> None:
        async with contextlib.AsyncExitStack() as stack:
            manager = await stack.enter_async_context(FabricManager(api.url, ADMIN_TOKEN))
            async for event in manager.events.follow(since=since, kinds=["test"], where={"key": "k"}):
                seen.append(event.seq)
                if len(seen) == 2:
                    return

    following = asyncio.create_task(follow())
    await record(api, "other")
    await record(api, "k")
    await becomes(lambda: bool(seen))
    feed: Feed = api.app.state.services.feed
    feed.close()  # every stream ends, as when a service is replaced
    await becomes(lambda: feed._waiters == 0)
    feed.closing = False
    await record(api, "k")
    await asyncio.wait_for(following, DEADLINE_S)
    assert seen == [since + 2, since + 3]


@pytest.mark.parametrize(
    ("accept", "streamed"),
    [
        (None, False),
        ("*/*", False),
        ("text/event-stream", True),
        ("text/event-stream, application/json;q=0.5", True),
        ("application/json, text/event-stream;q=0.5", False),
        ("text/event-stream;q=0", False),
        ("text/event-stream;q=x", False),
    ],
)
def test_a_stream_is_for_who_asks_for_it(accept: str | None, streamed: bool) -> None:
    assert prefers_stream(accept) is streamed
