"""Bad input gets a 4xx problem that names the field; never a 5xx, and nothing is written."""

import json
from typing import Any

import sqlalchemy as sa

from tests.api.conftest import Api

GOOD = {"tenant": "analytics", "size_bytes": 1 << 30}
JSON = {"Content-Type": "application/json"}


def deep(levels: int) -> bytes:
    return b'{"labels": ' + b"[" * levels + b"]" * levels + b"}"


def with_fields(**fields: Any) -> bytes:
    return json.dumps(GOOD | fields).encode()


# What is sent, and the field that the answer must name.
BODIES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "body"),
    "not JSON": (b"{", "body"),
    "an array": (b"[]", "body"),
    "null": (b"null", "body"),
    "a missing field": (b'{"tenant": "a"}', "size_bytes"),
    "an unknown field": (with_fields(sise_bytes=1), "sise_bytes"),
    "a field of a later release": (with_fields(qos_class="gold"), "qos_class"),
    "a size as text": (with_fields(size_bytes="64GiB"), "size_bytes"),
    "a size as number text": (with_fields(size_bytes="64"), "size_bytes"),
    "a size as float": (b'{"tenant": "a", "size_bytes": 64.0}', "size_bytes"),
    "a size as true": (with_fields(size_bytes=True), "size_bytes"),
    "size zero": (with_fields(size_bytes=0), "size_bytes"),
    "a negative size": (with_fields(size_bytes=-1), "size_bytes"),
    "size 2^53": (with_fields(size_bytes=1 << 53), "size_bytes"),
    "size 2^63": (with_fields(size_bytes=1 << 63), "size_bytes"),
    "size 10^400": (b'{"tenant": "a", "size_bytes": 1' + b"0" * 400 + b"}", "size_bytes"),
    "a number of 5000 digits": (b'{"tenant": "a", "size_bytes": ' + b"9" * 5000 + b"}", "body"),
    "NaN": (b'{"tenant": "a", "size_bytes": NaN}', "body"),
    "Infinity": (b'{"tenant": "a", "size_bytes": -Infinity}', "body"),
    "1e999": (b'{"tenant": "a", "size_bytes": 1e999}', "body"),
    "bind as text": (with_fields(bind="yes"), "bind"),
    "a NUL": (with_fields(tenant="a\x00b"), "tenant"),
    "a NUL in a name": (with_fields(labels={"a\x00": "b"}), "labels"),
    "half a surrogate pair": (b'{"size_bytes": 1, "tenant": "\\ud800"}', "tenant"),
    "half a surrogate pair inside": (b'{"size_bytes": 1, "tenant": "a", "labels": {"x": "\\udfff"}}', "labels.x"),
    "not UTF-8": (b'{"tenant": "\xff", "size_bytes": 1}', "body"),
    "UTF-16": (json.dumps(GOOD).encode("utf-16"), "body"),
    "a byte order mark": (b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), "body"),
    "a field twice": (b'{"tenant": "a", "tenant": "b", "size_bytes": 1}', "tenant"),
    "a nested field twice": (b'{"tenant": "a", "size_bytes": 1, "labels": {"x": "1", "x": "2"}}', "x"),
    "33 levels": (deep(33), "labels"),
    "10000 levels": (deep(10_000), "body"),
    "a long text": (with_fields(tenant="a" * 5000), "tenant"),
    "an empty tenant": (with_fields(tenant=""), "tenant"),
    "control characters": (with_fields(consumer={"kind": "VM", "name": "a\x1b[31m"}), "consumer.name"),
    "too many labels": (with_fields(labels={f"l{n}": "" for n in range(65)}), "labels"),
    "1001 labels": (with_fields(labels={f"l{n}": "" for n in range(1001)}), "labels"),
    "a label that is a number": (with_fields(labels={"a": 1}), "labels.a"),
    "a consumer without kind": (with_fields(consumer={}), "consumer.kind"),
    "an attachment of no kind": (with_fields(attachment="usb"), "attachment"),
    "pool and device": (with_fields(pool="p", device="d"), "device"),
    "no time at all": (with_fields(deadline_s=0), "deadline_s"),
    "a deadline of 2^63": (with_fields(deadline_s=1 << 63), "deadline_s"),
    "a time-to-live of ages": (with_fields(reservation_ttl_s=1 << 40), "reservation_ttl_s"),
}


async def everything(api: Api) -> dict[str, int]:
    """How many rows there are in every table that a request could write to."""
    async with api.db.snapshot() as tx:
        tables = ("allocation", "allocation_key", "segment", "tenant", "operation", "event", "event_outbox", "host")
        return {t: (await tx.execute(sa.text(f"SELECT count(*) FROM {t}"))).scalar_one() for t in tables}


def fields(body: dict[str, Any]) -> list[str]:
    return [error["field"] for error in body["errors"]]


async def test_every_bad_body_gets_422_with_the_field_and_writes_nothing(api: Api) -> None:
    before = await everything(api)
    wrong = []
    for name, (body, field) in BODIES.items():
        response = await api.http.put("/v1/allocations/a", content=body, headers=JSON)
        problem = response.json()
        if (response.status_code, problem["code"]) != (422, "validation_failed") or field not in fields(problem):
            wrong.append((name, response.status_code, problem))
        assert response.headers["content-type"] == "application/problem+json"
        assert len(response.content) < 3000, name
    assert wrong == []
    assert await everything(api) == before


async def test_a_body_of_another_type_is_named(api: Api) -> None:
    types = (None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16")
    for content_type in types:
        headers = {"Content-Type": content_type} if content_type else {}
        response = await api.http.put("/v1/allocations/a", content=json.dumps(GOOD).encode(), headers=headers)
        assert (response.status_code, fields(response.json())) == (422, ["Content-Type"]), content_type


async def test_a_charset_of_utf8_is_fine(api: Api) -> None:
    headers = {"Content-Type": 'application/json; charset="UTF-8"'}
    response = await api.http.put("/v1/allocations/a", content=json.dumps(GOOD).encode(), headers=headers)
    assert response.status_code == 201


async def test_a_large_body_is_413_announced_or_not(api: Api) -> None:
    announced = await api.http.put("/v1/allocations/a", content=b"x" * 65_537, headers=JSON)

    async def chunks() -> Any:
        for _ in range(70):
            yield b" " * 1024

    streamed = await api.http.put("/v1/allocations/a", content=chunks(), headers=JSON)
    assert [r.status_code for r in (announced, streamed)] == [413, 413]
    assert announced.json()["code"] == "too_large"


# A path, and the field that the answer must name.
QUERIES = {
    "/v1/allocations?limit=0": "limit",
    "/v1/allocations?limit=1001": "limit",
    "/v1/allocations?limit=9223372036854775808": "limit",
    "/v1/allocations?limit=ten": "limit",
    "/v1/allocations?cursor=": "cursor",
    "/v1/allocations?cursor=!!!": "cursor",
    "/v1/allocations?cursor=WzFd": "cursor",  # [1]
    "/v1/allocations?cursor=WyJhIl0": "cursor",  # ["a"], which is no UUID
    "/v1/allocations?cursor=WyJcdTAwMDAiXQ": "cursor",  # ["\u0000"]
    "/v1/logical-devices?cursor=WyJhIiwiOTk5OTkiXQ": "cursor",  # ["a", "99999"], no smallint
    "/v1/extents?cursor=WyJhIiwiMSIsIjkyMjMzNzIwMzY4NTQ3NzU4MDgiXQ": "cursor",  # 2^63
    "/v1/devices?cursor=WyJcdWQ4MDAiXQ": "cursor",  # half a surrogate pair
    "/v1/allocations?older_than_s=-1": "older_than_s",
    "/v1/allocations?older_than_s=9223372036854775808": "older_than_s",
    "/v1/allocations?phase=gone": "phase.0",
    "/v1/allocations?tenant=a%00b": "tenant",
    "/v1/allocations?tenant=%ff": "tenant",
    "/v1/allocations?claim_uid=a%00b": "claim_uid",
    "/v1/allocations?tennant=a": "tennant",
    "/v1/allocations/a?wait=31": "wait",
    "/v1/allocations/a?wait=x": "wait",
    "/v1/allocations/a%00b": "allocation_key",
    "/v1/allocations/a%20b": "allocation_key",
    "/v1/allocations/%ff": "allocation_key",
    "/v1/allocations/" + "a" * 201: "allocation_key",
    "/v1/allocations/a%00b/timeline": "allocation_key",
    "/v1/devices/a%00b": "device_id",
    "/v1/pools/%ed%a0%80": "pool_id",
    "/v1/logical-devices/1": "logical_device_id",
    "/v1/operations/not-a-uuid": "operation_id",
    "/v1/operations/0199d3a0-6c5e-7c31-9d4b-0f4e2f1f6a10?wait=-1": "wait",
    "/v1/operations?state=asleep": "state",
    "/v1/events?since=-1": "since",
    "/v1/events?since=9223372036854775808": "since",
    "/v1/events?wait=60": "wait",
    "/v1/events?kind=a%00": "kind.0",
    "/v1/events?limit=100000": "limit",
}


async def test_every_bad_query_or_path_gets_422_with_the_field(api: Api) -> None:
    wrong = []
    for path, field in QUERIES.items():
        response = await api.http.get(path)
        problem = response.json()
        if response.status_code != 422 or fields(problem) != [field]:
            wrong.append((path, response.status_code, problem))
    assert wrong == []


UNKNOWN = "0199d3a0-6c5e-7c31-9d4b-0f4e2f1f6a10"


UNKNOWN_PATHS = [
    "/v1/allocations/nobody",
    "/v1/allocations/nobody/timeline",
    "/v1/devices/nothing",
    f"/v1/devices/{UNKNOWN}",
    f"/v1/logical-devices/{UNKNOWN}",
    f"/v1/extents/{UNKNOWN}",
    f"/v1/attachments/{UNKNOWN}",
    "/v1/hosts/nobody",
    "/v1/pools/nothing",
    "/v1/fabrics/nothing",
    f"/v1/operations/{UNKNOWN}?wait=5",
    "/v1/nothing",
    "/nothing",
    "/v1/devices/",
    "/",
]


async def test_what_is_unknown_is_a_404_problem(api: Api) -> None:
    for path in UNKNOWN_PATHS:
        response = await api.http.get(path)
        assert (response.status_code, response.json()["code"]) == (404, "not_found"), path


async def test_what_is_unknown_cannot_be_changed_either(api: Api) -> None:
    report = {"boot_id": "b", "segments": [{"id": UNKNOWN, "phase": "online"}]}
    answers = [
        await api.http.put("/v1/allocations/nobody/binding", json={"host": "node-0"}),
        await api.http.delete("/v1/allocations/nobody/binding"),
        await api.http.post("/v1/allocations/nobody/node-state", json=report),
    ]
    assert [answer.status_code for answer in answers] == [404, 404, 404]


METHODS = [
    ("POST", "/v1/allocations/a"),
    ("PATCH", "/v1/devices/mld-0"),
    ("PUT", "/v1/events"),
    ("PATCH", "/v1/allocations/a/binding"),
    ("TRACE", "/v1/pools"),
]


async def test_a_method_that_does_not_apply_is_405_and_says_which_do(api: Api) -> None:
    for method, path in METHODS:
        response = await api.http.request(method, path)
        assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed"), path
        assert response.headers["allow"]


NODE_STATES: dict[str, tuple[dict[str, Any], str]] = {
    "no segments": ({"boot_id": "b", "segments": []}, "segments"),
    "two without id": ({"boot_id": "b", "segments": [{"phase": "online"}, {"phase": "online"}]}, "segments.id"),
    "a bad id": ({"boot_id": "b", "segments": [{"id": "x", "phase": "online"}]}, "segments.0.id"),
    "a number as id": ({"boot_id": "b", "segments": [{"id": 5, "phase": "online"}]}, "segments.0.id"),
    "a bad phase": ({"boot_id": "b", "segments": [{"id": UNKNOWN, "phase": "up"}]}, "segments.0.phase"),
    "a bad epoch": ({"boot_id": "b", "epoch": 1 << 63, "segments": [{"id": UNKNOWN, "phase": "online"}]}, "epoch"),
    "a bad node": (
        {"boot_id": "b", "segments": [{"id": UNKNOWN, "phase": "online", "numa_node": 1 << 31}]},
        "segments.0.numa_node",
    ),
    "no boot id": ({"segments": [{"id": UNKNOWN, "phase": "online"}]}, "boot_id"),
}


async def test_a_bad_node_report_names_the_field(api: Api) -> None:
    for name, (body, field) in NODE_STATES.items():
        response = await api.http.post("/v1/allocations/a/node-state", json=body)
        assert (response.status_code, fields(response.json())) == (422, [field]), name


async def test_the_only_segment_needs_no_id(api: Api) -> None:
    await api.bound("a")
    report = {"boot_id": "b", "segments": [{"phase": "online"}]}
    assert (await api.http.post("/v1/allocations/a/node-state", json=report)).json()["phase"] == "online"
    missing = await api.http.post("/v1/allocations/nothing/node-state", json=report)
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_a_report_about_a_segment_of_somebody_else_is_404(api: Api) -> None:
    await api.bound("a")
    report = {"boot_id": "b", "segments": [{"id": UNKNOWN, "phase": "online"}]}
    response = await api.http.post("/v1/allocations/a/node-state", json=report)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_odd_conditions_are_no_trouble(api: Api) -> None:
    await api.put("a")
    for tag in ("", '"', "W/", '"x", "y"', "\\", "a" * 199):
        seen = await api.http.get("/v1/allocations/a", headers={"If-None-Match": tag})
        gone = await api.http.delete("/v1/allocations/a", headers={"If-Match": tag})
        assert (seen.status_code, gone.status_code) == (200, 412), tag
    assert (await api.http.get("/v1/allocations/a", headers={"If-None-Match": "*"})).status_code == 304
    assert (await api.http.delete("/v1/allocations/a", headers={"If-Match": "*"})).status_code == 204


async def test_a_request_id_is_kept_when_it_is_printable_and_replaced_when_not(api: Api) -> None:
    kept = await api.http.get("/healthz", headers={"X-Request-Id": "trace-1"})
    long = await api.http.get("/healthz", headers={"X-Request-Id": "a" * 129})
    odd = await api.http.get("/healthz", headers=[(b"X-Request-Id", b"a\xffb")])
    assert kept.headers["x-request-id"] == "trace-1"
    assert len(long.headers["x-request-id"]) == 36
    assert len(odd.headers["x-request-id"]) == 36
