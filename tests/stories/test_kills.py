"""The service dies at any moment; what was promised is kept, and hardware is not disturbed."""

import random
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from fabric_manager.domain.units import GiB
from tests.rack_side import rack
from tests.services import Caller, Service

WISH: dict[str, Any] = {"tenant": "analytics", "size_bytes": 64 * GiB}
SEED = 20261130
KILLS = 6
UNBIND = "5202"  # the opcode as the rack notes it
POOLS = ("high-performance", "standard")


def put_until_answered(service: Service, key: str, wish: dict[str, Any]) -> None:
    with service.caller() as caller:
        caller.put(key, wish)


def unbinds(journal: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in journal if entry["op"] == UNBIND]


def kill_during_put(service: Service, caller: Caller, key: str, wish: dict[str, Any], after_s: float) -> None:
    """Send the request, and kill the service somewhere between before it arrived and after it was bound."""
    request = caller.http.build_request("PUT", f"/allocations/{key}", json=wish)
    try:
        caller.http.send(request)
    except httpx.TransportError:
        return  # killed before the answer: the caller cannot know
    time.sleep(after_s)  # the moment of the kill is what varies; nothing waits for a result here


def test_a_service_killed_between_request_and_bound_finishes_after_its_restart(service: Service) -> None:
    chance = random.Random(SEED)
    for n in range(KILLS):
        wish = WISH | {"pool": POOLS[n % 2], "host": f"node-{n}"}
        with service.caller() as caller:
            kill_during_put(service, caller, f"kill-{n}", wish, chance.uniform(0, 0.12))
        service.kill()
        service.start()
        with service.caller() as caller:
            caller.put(f"kill-{n}", wish)  # ask again: once in all
            caller.reaches(f"kill-{n}", "bound")
    with service.caller() as caller:
        assert caller.violations() == []
        assert len(caller.get("/allocations")["items"]) == KILLS
    assert unbinds(rack(service).journal()) == [], "nothing was ever taken away"


def test_a_service_killed_while_sanitizing_erases_from_zero(service: Service) -> None:
    control = rack(service)
    for pool in POOLS:
        with service.caller() as caller:
            caller.put(pool, WISH | {"pool": pool, "host": "node-0"}, wait_s=20)
            control.set_speed(0.2)  # ten seconds of erasing become fifty
            caller.delete(pool)
            caller.reaches(pool, "sanitizing")
        service.kill()
        control.set_speed(100)
        service.start()
        with service.caller() as caller:
            caller.reaches(pool, "released")
            story = caller.get(f"/allocations/{pool}/timeline")["entries"]
            assert [entry for entry in story if entry["kind"] == "evidence"]
            assert caller.violations() == []


def test_a_rack_that_kept_its_state_goes_on_undisturbed(service: Service, caller: Caller) -> None:
    bound = caller.put("kept", WISH | {"host": "node-2"}, wait_s=20)
    caller.report(bound, "online")
    control = rack(service)
    control.restart(volatile=False)
    asked = len(control.journal())
    caller.put("after", WISH | {"host": "node-3"}, wait_s=20)
    assert caller.get("/allocations/kept")["phase"] == "online"
    assert unbinds(control.journal()[asked:]) == []


@pytest.mark.parametrize("pool", POOLS)
def test_a_rack_that_forgot_its_bindings_makes_them_lost(service: Service, caller: Caller, pool: str) -> None:
    bound = caller.put("lost", WISH | {"host": "node-2", "pool": pool}, wait_s=20)
    rack(service).restart(volatile=True)
    lost = caller.reaches("lost", "lost")
    assert {"type": "Bound", "status": "False"}.items() <= lost["conditions"][0].items()
    caller.ask("PUT", "/allocations/lost/binding", json={"host": "node-2"}, expect=202)
    again = caller.reaches("lost", "bound")
    assert [s["id"] for s in again["segments"]] == [s["id"] for s in bound["segments"]]
    assert caller.violations() == []


def test_a_second_start_finds_everything_as_it_was(tmp_path: Path) -> None:
    service = Service(tmp_path / "data")
    service.start()
    with service.caller() as caller:
        before = caller.put("stays", WISH | {"host": "node-1"}, wait_s=20)
    service.stop()
    service.start()
    with service.caller() as caller:
        assert caller.get("/allocations/stays") == before
    service.stop()
