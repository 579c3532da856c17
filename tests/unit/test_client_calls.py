"""The client against a real HTTP server that speaks the documented JSON, and answers what each test scripts."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fabric_manager.client import (
    AllocationRequest,
    Consumer,
    FabricManager,
    ProblemError,
    SegmentState,
    UnexpectedAnswerError,
    UnreachableError,
)

GIB = 1 << 30
NOW = "2026-03-01T03:12:00.123456Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`lost`: the request is read, then the connection is cut."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any


class ScriptedService:
    """Answers each route in the order of its script; the last answer stays. A route without script is not found."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self._scripts: dict[str, list[Answer]] = {}

    def on(self, route: str, *answers: Answer) -> None:
        self._scripts[route] = list(answers)

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        script = self._scripts.get(f"{asked.method} {asked.path}", [a_problem("not_found", 404)])
        return script.pop(0) if len(script) > 1 else script[0]


def a_problem(code: str, status: int, *, headers: Mapping[str, str] | None = None, **members: Any) -> Answer:
    body = {"type": f"/problems/{code}", "title": code, "status": status, "detail": f"{code}, in words", "code": code}
    return Answer(status=status, body=body | members, headers=headers or {})


def an_allocation(**members: Any) -> dict[str, Any]:
    segment = {
        "id": "0199-segment",
        "device": "mld-0",
        "logical_device": 3,
        "extents": None,
        "size_bytes": 64 * GIB,
        "min_bandwidth": 0,
        "binding": {"switch": "sw-0", "vcs": 2, "vppb": 5, "phase": "bound"},
    }
    condition = {"type": "Bound", "status": "True", "reason": "ReadBack", "message": "m", "last_transition_at": NOW}
    return {
        "key": "k",
        "id": "0199-allocation",
        "tenant": "analytics",
        "phase": "bound",
        "generation": 5,
        "size_bytes": 64 * GIB,
        "granted_bytes": 64 * GIB,
        "pool": "high-performance",
        "host": "node-3",
        "consumer": None,
        "segments": [segment],
        "conditions": [condition],
        "failure": None,
        "operation": None,
        "created_at": NOW,
        "updated_at": NOW,
        "a_field_of_a_later_release": {"ignored": True},
    } | members


def an_event(seq: int) -> dict[str, Any]:
    return {
        "seq": seq,
        "at": NOW,
        "type": "allocation.bound",
        "object_kind": "allocation",
        "object_id": "0199-allocation",
        "key": "k",
        "before": {"phase": "binding"},
        "after": {"phase": "bound"},
        "actor": "reconciler",
        "request_id": None,
        "cause": None,
    }


def a_list(*items: Any, as_of: int = 7, next_cursor: str | None = None) -> Answer:
    return Answer(body={"items": list(items), "next_cursor": next_cursor, "as_of": as_of})


def an_event_page(*seqs: int, next_since: int, as_of: int = 106) -> Answer:
    items = [an_event(seq) for seq in seqs]
    return Answer(body={"items": items, "next_since": next_since, "next_cursor": None, "as_of": as_of})


def a_timeline(*entries: Any, truncated: bool = False) -> Answer:
    return Answer(body={"key": "k", "entries": entries, "truncated": truncated, "as_of": 7})


@contextmanager
def a_service() -> Iterator[ScriptedService]:
    service: ScriptedService

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            text = self.rfile.read(length)
            url = urlsplit(self.path)
            asked = Asked(
                method=self.command,
                path=url.path,
                query=parse_qs(url.query),
                headers=dict(self.headers),
                body=json.loads(text) if text else None,
            )
            answer = service.answer(asked)
            if answer.lost:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            content = b"" if answer.status == 204 else content
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815  the names are http.server's

        def log_message(self, *_arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service = ScriptedService(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with a_service() as running:
        yield running


def nobody_listens() -> str:
    """An address whose port was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def asking(*servers: str, retry_s: float = 5.0) -> FabricManager:
    return FabricManager(servers, "secret", retry_s=retry_s, random=Random(1))


REQUEST = AllocationRequest(tenant="analytics", size_bytes=64 * GIB, host="node-3", consumer=Consumer(kind="Pod"))


async def test_a_put_sends_only_what_was_asked_for_and_says_whether_it_was_new(service: ScriptedService) -> None:
    service.on("PUT /v1/allocations/a:b~1", Answer(status=201, body=an_allocation()), Answer(body=an_allocation()))
    async with asking(service.url) as manager:
        first = await manager.allocations.put("a:b~1", REQUEST, wait_s=45)
        again = await manager.allocations.put("a:b~1", REQUEST)
    assert (first.replayed, again.replayed) == (False, True)
    assert service.asked[0].body == {
        "tenant": "analytics",
        "size_bytes": 64 * GIB,
        "host": "node-3",
        "consumer": {"kind": "Pod"},
        "labels": {},
    }
    assert service.asked[0].headers["Authorization"] == "Bearer secret"
    assert service.asked[0].headers["Prefer"] == "wait=30"
    assert "Prefer" not in service.asked[1].headers


async def test_an_answer_is_read_into_values_and_unknown_fields_are_ignored(service: ScriptedService) -> None:
    service.on("GET /v1/allocations/k", Answer(body=an_allocation()))
    async with asking(service.url) as manager:
        allocation = await manager.allocations.get("k")
    assert allocation.segments[0].binding is not None
    assert allocation.segments[0].binding.vppb == 5
    assert allocation.conditions[0].last_transition_at.isoformat() == "2026-03-01T03:12:00.123456+00:00"
    assert allocation.document["a_field_of_a_later_release"] == {"ignored": True}


@pytest.mark.parametrize("body", [b"<html>", {"key": "k"}, ["k"], an_allocation(created_at="yesterday")])
async def test_an_answer_outside_the_contract_is_said_to_be_one(service: ScriptedService, body: Any) -> None:
    service.on("GET /v1/allocations/k", Answer(body=body))
    async with asking(service.url) as manager:
        with pytest.raises(UnexpectedAnswerError):
            await manager.allocations.get("k")


async def test_a_refusal_carries_its_facts(service: ScriptedService) -> None:
    funnel = [{"filter": "known", "removed": 0, "left": 4}]
    problem = a_problem(
        "insufficient_capacity", 409, terminal_for="placement", retryable=False, funnel=funnel, request_id="r-1"
    )
    service.on("PUT /v1/allocations/k", problem)
    async with asking(service.url) as manager:
        with pytest.raises(ProblemError) as caught:
            await manager.allocations.put("k", REQUEST)
    error = caught.value
    assert (error.code, error.status, error.retryable) == ("insufficient_capacity", 409, False)
    assert (error.terminal_for, error.request_id) == ("placement", "r-1")
    assert error.facts == {"funnel": funnel}
    assert str(error) == "insufficient_capacity, in words"
    assert len(service.asked) == 1, "a refusal is an answer; asking again is the caller's decision"


@pytest.mark.parametrize(
    "trouble",
    [
        Answer(lost=True),
        a_problem("overloaded", 429, headers={"Retry-After": "0"}),
        a_problem("database_unavailable", 503, retry_after_ms=10),
        Answer(status=502, body=b"bad gateway"),
    ],
    ids=["answer lost", "429", "503", "502 of a proxy"],
)
async def test_a_call_is_repeated_until_it_is_answered(service: ScriptedService, trouble: Answer) -> None:
    service.on("PUT /v1/allocations/k", trouble, trouble, Answer(body=an_allocation()))
    async with asking(service.url) as manager:
        placed = await manager.allocations.put("k", REQUEST)
    assert placed.allocation.phase == "bound"
    assert len(service.asked) == 3


async def test_a_pause_longer_than_the_time_left_is_not_begun(service: ScriptedService) -> None:
    service.on("GET /v1/version", a_problem("recovering", 503, headers={"Retry-After": "3600"}))
    async with asking(service.url) as manager:
        with pytest.raises(ProblemError) as caught:
            await manager.version()
    assert caught.value.retry_after_ms == 3_600_000
    assert len(service.asked) == 1


async def test_the_next_server_is_asked_when_one_does_not_answer_and_stays_the_one(service: ScriptedService) -> None:
    service.on("GET /v1/version", Answer(body={"version": "1"}))
    async with asking(nobody_listens(), nobody_listens(), service.url, retry_s=0) as manager:
        assert await manager.version() == {"version": "1"}
        assert await manager.version() == {"version": "1"}


async def test_nobody_there_is_said_with_the_addresses() -> None:
    server = nobody_listens()
    async with asking(server, retry_s=0.2) as manager:
        with pytest.raises(UnreachableError, match=server):
            await manager.version()


@pytest.mark.parametrize("server", ["127.0.0.1:8080", "ftp://host", "http://", "http://[::1"])
def test_an_address_that_cannot_be_one_is_refused_at_once(server: str) -> None:
    with pytest.raises(ValueError, match="server"):
        FabricManager(server)


async def test_waiting_looks_again_until_the_phase_is_there(service: ScriptedService) -> None:
    binding = Answer(body=an_allocation(phase="binding"))
    service.on("GET /v1/allocations/k", binding, binding, Answer(body=an_allocation(phase="online")))
    async with asking(service.url) as manager:
        allocation = await manager.allocations.wait_for("k", {"bound", "online"}, wait_s=40)
    assert allocation.phase == "online"
    assert service.asked[0].query["wait"] == ["30"]
    assert set(service.asked[0].query["phase"]) == {"bound", "online", "failed", "lost", "quarantined", "released"}


@pytest.mark.parametrize("end", ["failed", "lost", "quarantined", "released"])
async def test_waiting_ends_where_nothing_more_will_come(service: ScriptedService, end: str) -> None:
    service.on("GET /v1/allocations/k", Answer(body=an_allocation(phase=end)))
    async with asking(service.url) as manager:
        assert (await manager.allocations.wait_for("k", {"bound"}, wait_s=60)).phase == end


async def test_waiting_ends_when_its_time_is_over(service: ScriptedService) -> None:
    service.on("GET /v1/allocations/k", Answer(body=an_allocation(phase="binding")))
    async with asking(service.url) as manager:
        assert (await manager.allocations.wait_for("k", {"bound"}, wait_s=0)).phase == "binding"
    assert len(service.asked) == 1


async def test_release_says_whether_it_is_over(service: ScriptedService) -> None:
    service.on(
        "DELETE /v1/allocations/k", Answer(status=202, body=an_allocation(phase="releasing")), Answer(status=204)
    )
    async with asking(service.url) as manager:
        leaving = await manager.allocations.delete("k")
        assert leaving is not None
        assert leaving.phase == "releasing"
        assert await manager.allocations.delete("k") is None


async def test_bind_unbind_and_the_nodes_word_are_sent_as_documented(service: ScriptedService) -> None:
    for route in ("PUT /v1/allocations/k/binding", "DELETE /v1/allocations/k/binding"):
        service.on(route, Answer(status=202, body=an_allocation(phase="binding")))
    service.on("POST /v1/allocations/k/node-state", Answer(body=an_allocation(phase="online")))
    async with asking(service.url) as manager:
        await manager.allocations.bind("k", host="node-3")
        await manager.allocations.unbind("k")
        online = SegmentState(id="s", phase="online", numa_node=2)
        await manager.allocations.node_state("k", boot_id="b", segments=[online])
    assert [each.body for each in service.asked] == [
        {"host": "node-3"},
        None,
        {"boot_id": "b", "segments": [{"id": "s", "phase": "online", "numa_node": 2}]},
    ]


async def test_a_list_is_read_page_by_page(service: ScriptedService) -> None:
    service.on(
        "GET /v1/allocations", a_list(an_allocation(key="a"), next_cursor="c=1&"), a_list(an_allocation(key="b"))
    )
    async with asking(service.url) as manager:
        found = await manager.allocations.list(phase="bound", host=None)
    assert [each.key for each in found] == ["a", "b"]
    assert [each.query.get("cursor") for each in service.asked] == [None, ["c=1&"]]
    assert all(each.query["phase"] == ["bound"] and "host" not in each.query for each in service.asked)


async def test_following_shows_each_event_once_through_a_lost_answer(service: ScriptedService) -> None:
    service.on(
        "GET /v1/events",
        an_event_page(5, 6, next_since=6),
        Answer(lost=True),
        an_event_page(next_since=9),  # nothing of these kinds up to nine
        an_event_page(9, 10, next_since=10),  # a server that repeats itself
    )
    seen = []
    async with asking(service.url) as manager:
        async for event in manager.events.follow(since=4, kinds=["allocation", "host"]):
            seen.append(event.seq)
            if event.seq == 10:
                break
    assert seen == [5, 6, 10]
    assert [each.query["since"] for each in service.asked] == [["4"], ["6"], ["6"], ["9"]]
    assert service.asked[0].query["kind"] == ["allocation", "host"]


async def test_events_that_are_no_longer_kept_end_following_with_the_oldest_number(service: ScriptedService) -> None:
    service.on("GET /v1/events", a_problem("events_expired", 410, oldest_seq=1000))
    async with asking(service.url) as manager:
        with pytest.raises(ProblemError) as caught:
            await anext(manager.events.follow(since=4))
    assert caught.value.facts == {"oldest_seq": 1000}


async def test_not_being_ready_is_an_answer(service: ScriptedService) -> None:
    service.on("GET /readyz", Answer(status=503, body={"ready": False}))
    async with asking(service.url) as manager:
        assert (await manager.readiness()).ready is False


async def test_operations_timelines_and_invariants_are_read(service: ScriptedService) -> None:
    service.on("GET /v1/operations/o", Answer(body={"id": "o", "goal": "bind", "state": "done", "reason": "x"}))
    service.on(
        "GET /v1/allocations/k/timeline", a_timeline({"at": NOW, "kind": "frame", "title": "Bind vPPB", "facts": {}})
    )
    checks = [{"name": "no byte has two owners", "examined": 12}]
    violations = [{"name": "no byte has two owners", "objects": ["mld-0"], "detail": "both"}]
    service.on("GET /v1/invariants", Answer(body={"as_of": 7, "checks": checks, "violations": violations}))
    async with asking(service.url) as manager:
        assert (await manager.operation("o", wait_s=5)).state == "done"
        assert (await manager.allocations.timeline("k")).entries[0].title == "Bind vPPB"
        found = await manager.invariants()
    assert (found.checks[0].examined, found.violations[0].objects) == (12, ("mld-0",))


@pytest.mark.parametrize("token", ["two\nlines", "schlüssel"])
def test_a_token_that_no_header_can_carry_is_refused_at_once(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        FabricManager("http://127.0.0.1", token)


async def test_create_sends_its_idempotency_key_again_after_a_lost_answer(service: ScriptedService) -> None:
    service.on("POST /v1/allocations", Answer(lost=True), Answer(status=201, body=an_allocation()))
    async with FabricManager(service.url, "secret") as manager:
        request = AllocationRequest(tenant="t", size_bytes=GIB)
        placed = await manager.allocations.create(request, idempotency_key="once", wait_s=5)
    assert (placed.allocation.key, placed.replayed) == (an_allocation()["key"], False)
    assert [asked.headers["Idempotency-Key"] for asked in service.asked] == ["once", "once"]
    assert service.asked[0].headers["Prefer"] == "wait=5"


async def test_candidates_are_read_with_their_refusal(service: ScriptedService) -> None:
    candidate = {"rank": 1, "device": "mld-0", "pool": "p", "granted_bytes": GIB, "waste_bytes": 0, "free_bytes": GIB}
    body = {
        "candidates": [candidate | {"latency_ns": 250, "decided_by": None, "why": "the only one"}],
        "largest_fit_bytes": GIB,
        "refusal": None,
        "funnel": [],
    }
    service.on("POST /v1/allocation-candidates", Answer(body=body))
    async with FabricManager(service.url, "secret") as manager:
        found = await manager.allocations.candidates(AllocationRequest(tenant="t", size_bytes=GIB))
    assert [each.device for each in found.candidates] == ["mld-0"]
    assert found.refusal is None
