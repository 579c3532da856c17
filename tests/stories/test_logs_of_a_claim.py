"""One claim can be followed through the log by its request id or its key, and the log gives no secret away."""

import json
from typing import Any

from fabric_manager.domain.units import GiB
from tests.services import Caller, Service

WISH: dict[str, Any] = {"tenant": "analytics", "size_bytes": 64 * GiB, "host": "node-3", "pool": "high-performance"}


def lines(service: Service) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (service.data_dir / "service.log").read_text().splitlines()]


def test_one_claim_is_followed_from_its_request_to_the_last_command(service: Service, caller: Caller) -> None:
    headers = {"X-Request-Id": "req-bind", "Prefer": "wait=20"}
    bound = caller.ask("PUT", "/allocations/claim:1?ignored=secret-word", json=WISH, headers=headers, expect=(201, 422))
    if "phase" not in bound:  # unknown parameters may be refused
        bound = caller.ask("PUT", "/allocations/claim:1", json=WISH, headers=headers, expect=201)
    assert bound["phase"] == "bound"
    caller.ask("DELETE", "/allocations/claim:1", headers={"X-Request-Id": "req-release"}, expect=202)
    caller.reaches("claim:1", "released")
    caller.ask("PUT", "/allocations/refused:1", json=WISH | {"size_bytes": 1 << 50}, expect=409)
    every = lines(service)

    (access,) = [line for line in every if line.get("request_id") == "req-bind" and line.get("status") == 201]
    assert (access["method"], access["route"]) == ("PUT", "/v1/allocations/{allocation_key}")
    assert (access["key"], access["actor"]) == ("claim:1", "admin")
    assert access["duration_ms"] > 0
    for request_id, steps in (("req-bind", {"bind"}), ("req-release", {"unbind", "sanitize"})):
        worked = [line for line in every if line.get("request_id") == request_id and "operation" in line]
        assert {line["step"] for line in worked if line["message"] == "step done"} == steps
        assert "segment settled" in {line["message"] for line in worked}
        assert {(line["key"], line["fabric"], line["actor"]) for line in worked} == {("claim:1", "rack-0", "admin")}
        assert len({line["operation"] for line in worked}) == 1
    (refused,) = [line for line in every if line.get("key") == "refused:1"]
    assert (refused["status"], refused["level"]) == (409, "INFO")

    text = (service.data_dir / "service.log").read_text()
    assert service.token not in text
    assert service.token.rpartition("_")[2] not in text
    assert "secret-word" not in text
    assert "/healthz" not in text
