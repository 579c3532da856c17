"""A dashboard polls through a service that is killed and started again, and is told one consistent story."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.services import Caller, Service

BUCKETS = (
    "capacity_bytes",
    "free_bytes",
    "allocated_bytes",
    "sanitizing_bytes",
    "quarantined_bytes",
    "withdrawn_bytes",
)
CATCH_UP_S = 30.0


@dataclass
class Dashboard:
    """Keeps what it was told, and checks each answer against what came before."""

    as_of: dict[str, int] = field(default_factory=dict)
    since: int = 0
    seen: list[int] = field(default_factory=list)
    types: list[tuple[str | None, str]] = field(default_factory=list)
    devices: dict[str, Any] = field(default_factory=dict)
    tag: str | None = None
    unchanged: int = 0

    def note(self, what: str, as_of: int) -> None:
        assert as_of >= self.as_of.get(what, 0), f"{what} went back"
        self.as_of[what] = as_of

    def poll(self, http: httpx.Client) -> None:
        self.look_at_summary(http)
        self.look_at_devices(http)
        self.follow_events(http)

    def look_at_summary(self, http: httpx.Client) -> None:
        answer = http.get("/summary").raise_for_status()
        summary = answer.json()
        self.note("summary", summary["as_of"])
        assert answer.headers["fabric-seq"] == str(summary["as_of"])
        for bucket in BUCKETS:
            assert summary["total"][bucket] == sum(pool[bucket] for pool in summary["pools"]), bucket
        held = summary["total"]["bytes_by_phase"]
        erasing, quarantined = held.pop("sanitizing", 0), held.pop("quarantined", 0)
        assert summary["total"]["allocated_bytes"] == sum(held.values())
        assert (summary["total"]["sanitizing_bytes"], summary["total"]["quarantined_bytes"]) == (erasing, quarantined)

    def look_at_devices(self, http: httpx.Client) -> None:
        headers = {"If-None-Match": self.tag} if self.tag else {}
        answer = http.get("/devices", params={"limit": 1000}, headers=headers)
        self.note("devices", int(answer.headers["fabric-seq"]))
        if answer.status_code == 304:
            self.unchanged += 1
            whole = http.get("/devices", params={"limit": 1000}).raise_for_status()
            if whole.headers.get("etag") == self.tag:
                assert self.by_name(whole) == self.devices, "304, and yet it had changed"
            return
        answer.raise_for_status()
        before, self.devices, self.tag = self.devices, self.by_name(answer), answer.headers.get("etag")
        for name, device in before.items():
            assert self.devices[name]["generation"] >= device["generation"], name

    @staticmethod
    def by_name(answer: httpx.Response) -> dict[str, Any]:
        return {device["name"]: device for device in answer.json()["items"]}

    def follow_events(self, http: httpx.Client) -> None:
        page = http.get("/events", params={"since": self.since, "limit": 1000}).raise_for_status().json()
        self.note("events", page["as_of"])
        self.seen += [event["seq"] for event in page["items"]]
        self.types += [(event["key"], event["type"]) for event in page["items"]]
        self.since = page["next_since"]

    def story_of(self, key: str) -> list[str]:
        return [what.removeprefix("allocation.") for whose, what in self.types if whose == key]


@pytest.fixture
def own_service(tmp_path: Any) -> Iterator[Service]:
    running = Service(tmp_path / "data")
    running.start()
    yield running
    running.stop()


def wish(**fields: Any) -> dict[str, Any]:
    return {"tenant": "analytics", "size_bytes": 64 << 30, "pool": "high-performance", "host": "node-3"} | fields


def polls_until(board: Dashboard, caller: Caller, key: str, phase: str) -> None:
    ends = time.monotonic() + CATCH_UP_S
    while phase not in board.story_of(key):
        assert time.monotonic() < ends, f"{key}: {board.story_of(key)} and no {phase}"
        board.poll(caller.http)


def test_a_dashboard_sees_one_story_through_a_kill_and_a_restart(own_service: Service) -> None:
    board = Dashboard()
    with own_service.caller() as caller:
        board.poll(caller.http)
        caller.put("stays", wish(), wait_s=20)
        caller.put("leaves", wish(), wait_s=20)
        polls_until(board, caller, "stays", "bound")
        caller.delete("leaves")
        caller.put("interrupted", wish())
        board.poll(caller.http)
    own_service.kill()
    own_service.start()
    with own_service.caller() as caller:
        for key, phase in (("interrupted", "bound"), ("leaves", "released")):
            polls_until(board, caller, key, phase)
        caller.delete("stays")
        polls_until(board, caller, "stays", "released")
        ends = time.monotonic() + CATCH_UP_S
        board.unchanged = 0
        while board.unchanged < 2:  # a rack at rest is not read again
            assert time.monotonic() < ends, "every poll of devices was answered whole"
            board.poll(caller.http)

    assert board.seen == list(range(board.seen[0], board.seen[0] + len(board.seen))), "each change once, in order"
    whole_life = ["reserved", "binding", "bound", "releasing", "sanitizing", "released"]
    assert board.story_of("stays") == board.story_of("leaves") == whole_life
    assert board.story_of("interrupted") == whole_life[:3]
