"""The demo's story, told to a real HTTP server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_manager.cli.demo import BOOT_ID, KEY, tell
from tests.unit.test_client_calls import (
    GIB,
    NOW,
    Answer,
    ScriptedService,
    a_list,
    a_problem,
    a_service,
    a_timeline,
    an_allocation,
)

PUT = f"PUT /v1/allocations/{KEY}"


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with a_service() as running:
        unread, read = (a_list({"name": "mld-0", "health": health}) for health in ("unknown", "ok"))
        running.on("GET /v1/devices", unread, read)
        running.on(f"POST /v1/allocations/{KEY}/node-state", Answer(body=an_allocation(key=KEY, phase="online")))
        running.on(
            f"GET /v1/allocations/{KEY}/timeline",
            a_timeline({"at": NOW, "kind": "event", "title": "allocation.reserved", "facts": {}}),
        )
        yield running


async def told(service: ScriptedService, tmp_path: Path) -> str:
    token_file = tmp_path / "admin.token"
    token_file.write_text("secret\n")
    said: list[str] = []
    await tell(said.append, service.url, token_file)
    text = "\n".join(said)
    assert f"{service.url}/docs" in text
    assert str(token_file) in text
    return text


async def test_the_first_start_brings_the_claim_online(service: ScriptedService, tmp_path: Path) -> None:
    service.on(PUT, Answer(status=201, body=an_allocation(key=KEY)))
    text = await told(service, tmp_path)
    asked, reported, _ = service.asked[2:]
    assert (asked.body["size_bytes"], asked.body["pool"], asked.body["host"]) == (
        64 * GIB,
        "high-performance",
        "node-3",
    )
    assert reported.body == {"boot_id": BOOT_ID, "segments": [{"id": "0199-segment", "phase": "online"}]}
    assert "64 GiB on mld-0 logical device 3, on sw-0 VCS 2 vPPB 5; phase online." in text
    assert "allocation.reserved" in text


async def test_a_second_start_finds_everything_as_it_was(service: ScriptedService, tmp_path: Path) -> None:
    service.on(PUT, Answer(status=200, body=an_allocation(key=KEY, phase="online")))
    text = await told(service, tmp_path)
    assert "everything is as it was" in text
    assert all(each.method != "POST" for each in service.asked)


async def test_a_claim_that_was_released_since_is_told_as_history(service: ScriptedService, tmp_path: Path) -> None:
    service.on(PUT, a_problem("released", 410))
    text = await told(service, tmp_path)
    assert "It was released" in text
    assert "allocation.reserved" in text


async def test_a_refused_claim_is_explained_and_the_way_on_is_shown(service: ScriptedService, tmp_path: Path) -> None:
    service.on(PUT, a_problem("insufficient_capacity", 409, terminal_for="placement"))
    assert "Error: insufficient_capacity (409)" in await told(service, tmp_path)
