"""Keys made by the service: unique, readable, and one per Idempotency-Key of a caller."""

import asyncio
import re
from collections import Counter
from typing import Any

import httpx

from fabric_manager.domain.actor import Role
from fabric_manager.domain.units import GiB
from tests.api.conftest import Api


async def post(
    api: Api, once: str | None = None, *, headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    body = {"tenant": "analytics", "size_bytes": 64 * GiB} | fields
    sent = (headers or {}) | ({"Idempotency-Key": once} if once else {})
    return await api.http.post("/v1/allocations", json=body, headers=sent)


async def test_the_key_is_made_and_its_location_told(api: Api) -> None:
    response = await post(api, host="node-0")
    assert response.status_code == 201, response.text
    key = response.json()["key"]
    assert re.fullmatch(r"analytics(-[a-z2-7]{4}){4}", key)
    assert response.headers["location"] == f"/v1/allocations/{key}"
    assert response.headers["etag"]
    assert (await api.http.get(response.headers["location"])).json()["id"] == response.json()["id"]


async def test_without_a_header_every_call_is_another_allocation(api: Api) -> None:
    keys = {(await post(api, pool="mlds")).json()["key"] for _ in range(4)}
    assert len(keys) == 4


async def test_a_hundred_calls_with_one_header_make_one_allocation(api: Api) -> None:
    answers = await asyncio.gather(*(post(api, "once") for _ in range(100)))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 99}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len({answer.headers["location"] for answer in answers}) == 1


async def test_another_body_under_the_header_is_409_also_for_another_tenant(api: Api) -> None:
    await post(api, "once")
    for fields in ({"size_bytes": GiB}, {"tenant": "other"}):
        refused = (await post(api, "once", **fields)).json()
        assert (refused["status"], refused["code"]) == (409, "key_reuse_mismatch")
        assert [difference["field"] for difference in refused["differs"]] == list(fields)


async def test_callers_do_not_share_headers(api: Api) -> None:
    red, blue = await api.token(Role.TENANT, tenant="red"), await api.token(Role.TENANT, tenant="blue")
    first = await post(api, "once", headers=red, tenant="red")
    second = await post(api, "once", headers=blue, tenant="blue")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["key"] != second.json()["key"]


async def test_a_refused_call_may_be_repeated_and_a_released_one_may_not(api: Api) -> None:
    held = [(await post(api, pool="mlds")).json()["key"] for _ in range(4)]
    assert (await post(api, "once", pool="mlds")).status_code == 409
    await api.http.delete(f"/v1/allocations/{held[0]}")
    made = await post(api, "once", pool="mlds")
    assert made.status_code == 201
    await api.http.delete(made.headers["location"])
    assert (await post(api, "once", pool="mlds")).json()["code"] == "released"


async def test_a_header_that_is_no_name_is_422(api: Api) -> None:
    for header in ("two words", "x" * 256):
        refused = await post(api, header)
        assert (refused.status_code, refused.json()["code"]) == (422, "validation_failed")


async def test_a_viewer_may_not(api: Api) -> None:
    assert (await post(api, headers=await api.token(Role.VIEWER))).status_code == 403
