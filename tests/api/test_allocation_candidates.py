"""The dry run: what a claim would get, why, and nothing done."""

from typing import Any

import pytest
import sqlalchemy as sa

from fabric_manager.domain.actor import Role
from fabric_manager.domain.units import GiB
from tests.api.conftest import Api


async def tried(api: Api, *, headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    body = {"tenant": "analytics", "size_bytes": 48 * GiB} | fields
    response = await api.http.post("/v1/allocation-candidates", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def execute(api: Api, statement: str) -> None:
    async with api.db.transaction() as tx:
        await tx.execute(sa.text(statement))


async def test_it_names_the_devices_best_first_and_says_why(api: Api) -> None:
    answer = await tried(api, host="node-0")
    first, second = answer["candidates"]
    assert (first["rank"], first["device"], first["pool"], first["waste_bytes"]) == (1, "dcd-0", "dcds", 0)
    assert (second["rank"], second["device"], second["granted_bytes"]) == (2, "mld-0", 64 * GiB)
    assert (second["waste_bytes"], second["decided_by"]) == (16 * GiB, "granted_bytes")
    assert "wastes 16 GiB more" in second["why"]
    assert [step["left"] for step in answer["funnel"]] == [2] * 8
    assert answer["refusal"] is None


async def test_the_next_claim_gets_the_first_candidate(api: Api) -> None:
    for fields in ({"host": "node-0"}, {"size_bytes": 64 * GiB}, {"pool": "mlds"}, {"attachment": "logical-device"}):
        first = (await tried(api, **fields))["candidates"][0]
        claimed = (await api.put(f"k-{len(str(fields))}", **{"size_bytes": 48 * GiB, **fields})).json()
        assert [segment["device"] for segment in claimed["segments"]] == [first["device"]], fields
        assert claimed["granted_bytes"] == first["granted_bytes"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"size_bytes": 1 << 50}, "insufficient_capacity"),
        ({"size_bytes": 65 * GiB, "pool": "mlds"}, "fragmentation"),
        ({"pool": "nowhere"}, "no_matching_device"),
        ({"host": "nobody"}, "not_reachable_from_host"),
    ],
)
async def test_a_refusal_is_an_answer_and_the_one_that_a_claim_gets(
    api: Api, fields: dict[str, Any], code: str
) -> None:
    answer = await tried(api, **fields)
    assert answer["candidates"] == []
    claim = (await api.put("k", **{"size_bytes": 48 * GiB, **fields})).json()
    assert answer["refusal"]["code"] == claim["code"] == code
    for fact in ("detail", "retryable", "terminal_for", "waiting_helps", "largest_fit_bytes"):
        assert answer["refusal"][fact] == claim[fact], fact
    assert answer["funnel"] == claim["funnel"]


async def test_quota_and_fence_are_seen_too(api: Api) -> None:
    await api.put("a")
    await execute(api, f"UPDATE tenant SET quota_bytes = {100 * GiB}")
    assert (await tried(api))["refusal"]["code"] == (await api.put("b")).json()["code"] == "quota_exceeded"
    await execute(api, "UPDATE host SET fenced_at = now(), fence_reason = 'smoke' WHERE name = 'node-1'")
    refusal = (await tried(api, tenant="other", host="node-1"))["refusal"]
    assert (refusal["code"], refusal["terminal_for"]) == ("fenced", "host")
    assert "smoke" in refusal["detail"]
    assert (await tried(api, tenant="other", host="node-1", bind=False))["refusal"] is None


async def test_it_writes_nothing(api: Api) -> None:
    before = (await api.http.get("/v1/events")).json()["as_of"]
    await tried(api)
    await tried(api, size_bytes=1 << 50)
    await api.sequence()
    assert (await api.http.get("/v1/events")).json()["as_of"] == before
    assert (await api.http.get("/v1/allocations")).json()["items"] == []


async def test_a_viewer_may_try_and_a_bounded_token_only_within_its_bounds(api: Api) -> None:
    assert (await tried(api, headers=await api.token(Role.VIEWER)))["candidates"]
    red = await api.token(Role.TENANT, tenant="red")
    wish = {"tenant": "blue", "size_bytes": GiB}
    refused = await api.http.post("/v1/allocation-candidates", json=wish, headers=red)
    assert (refused.status_code, refused.json()["field"]) == (403, "tenant")
