"""A claim's life, over HTTP and the simulated rack."""

from typing import Any

import pytest

from fabric_manager.domain.units import GiB
from tests.services import Caller

WISH: dict[str, Any] = {"tenant": "analytics", "size_bytes": 64 * GiB, "host": "node-3"}
POOLS = pytest.mark.parametrize("pool", ["high-performance", "standard"])


@POOLS
def test_a_claim_is_bound_used_released_erased_and_its_bytes_are_free_again(caller: Caller, pool: str) -> None:
    free_before = caller.get(f"/pools/{pool}")["free_bytes"]
    bound = caller.put("claim", WISH | {"pool": pool}, wait_s=20)
    assert bound["phase"] == "bound"
    caller.report(bound, "online")
    caller.report(bound, "offline")
    caller.delete("claim")
    caller.reaches("claim", "released")
    assert caller.get(f"/pools/{pool}")["free_bytes"] == free_before
    assert caller.violations() == []
    story = [entry["title"] for entry in caller.get("/allocations/claim/timeline")["entries"]]
    for chapter in ("reserved", "binding", "bound", "online", "releasing", "sanitizing", "released"):
        assert f"allocation.{chapter}" in story


@POOLS
def test_memory_that_a_node_uses_stays_with_it_although_it_was_deleted(caller: Caller, pool: str) -> None:
    bound = caller.put("used", WISH | {"pool": pool}, wait_s=20)
    caller.report(bound, "online")
    caller.delete("used")
    blocked = caller.get("/allocations/used")
    assert blocked["phase"] == "release_blocked"
    assert blocked["segments"][0]["binding"] is not None
    caller.report(bound, "online", expect=409)  # it must not bring up more of it now
    caller.report(bound, "offline")
    caller.reaches("used", "released")
