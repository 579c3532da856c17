"""Who may call, what a bounded token sees, and that a database in trouble is no reason to send anybody away."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import httpx
import pytest

from fabric_manager.api.application import openapi_document
from fabric_manager.domain.actor import Role
from fabric_manager.store import tokens
from tests.api.conftest import ADMIN_TOKEN, Api

OPEN = {"/healthz", "/readyz"}


def operations() -> list[tuple[str, str]]:
    paths = openapi_document()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def filled_in(path: str) -> str:
    for name in ("logical_device_id", "extent_id", "attachment_id", "operation_id"):
        path = path.replace("{" + name + "}", "0199d3a0-6c5e-7c31-9d4b-0f4e2f1f6a10")
    return "".join(part.split("}")[-1] if "}" in part else part for part in path.replace("{", "x{").split("{"))


async def test_every_v1_operation_wants_a_token_and_nothing_else_does(api: Api) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        for method, path in operations():
            response = await nobody.request(method, filled_in(path))
            if path in OPEN:
                assert response.status_code == 200, path
                continue
            assert (response.status_code, response.json()["code"]) == (401, "unauthenticated"), path
            assert response.headers["www-authenticate"].startswith("Bearer"), path


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Basic YTpi",
        f"Bearer {ADMIN_TOKEN}x",
        "Bearer fm_a_b",
        "Bearer " + "fm_a_" + "b" * 4000,
    ],
)
async def test_what_is_no_known_token_is_401(api: Api, header: str) -> None:
    response = await api.http.get("/v1/pools", headers={"Authorization": header})
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")


async def test_the_secret_is_stored_only_as_its_hash(api: Api) -> None:
    async with api.db.snapshot() as tx:
        owner = await tokens.find(tx, tokens.digest(ADMIN_TOKEN))
    assert owner is not None
    assert owner.name == "admin"


async def test_a_viewer_reads_and_writes_nothing(api: Api) -> None:
    viewer = await api.token(Role.VIEWER)
    assert (await api.http.get("/v1/allocations", headers=viewer)).status_code == 200
    refused = await api.put("a", headers=viewer)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert (await api.http.delete("/v1/allocations/a", headers=viewer)).status_code == 403
    assert (await api.put("a")).status_code == 201


async def test_a_tenant_orders_for_itself_only(api: Api) -> None:
    red = await api.token(Role.TENANT, tenant="red")
    assert (await api.put("a", tenant="red", headers=red)).status_code == 201
    refused = await api.put("b", tenant="blue", headers=red)
    assert (refused.status_code, refused.json()["field"]) == (403, "tenant")


async def test_a_foreign_key_is_as_if_it_were_not_there(api: Api) -> None:
    red = await api.token(Role.TENANT, tenant="red")
    await api.put("theirs", tenant="blue")
    assert (await api.http.get("/v1/allocations/theirs", headers=red)).status_code == 404
    assert (await api.http.get("/v1/allocations/theirs/timeline", headers=red)).status_code == 404
    assert (await api.http.get("/v1/allocations", headers=red)).json()["items"] == []
    assert (await api.http.delete("/v1/allocations/theirs", headers=red)).status_code == 204
    bound = await api.http.put("/v1/allocations/theirs/binding", json={"host": "node-0"}, headers=red)
    assert bound.status_code == 404
    taken = (await api.put("theirs", tenant="red", headers=red)).json()
    assert (taken["status"], taken["code"]) == (409, "key_reuse_mismatch")
    assert "differs" not in taken
    assert "blue" not in str(taken)
    assert (await api.http.get("/v1/allocations/theirs")).json()["phase"] == "reserved"


async def test_a_tenants_tombstone_binds_that_tenant_only(api: Api) -> None:
    red = await api.token(Role.TENANT, tenant="red")
    assert (await api.http.delete("/v1/allocations/k", headers=red)).status_code == 204
    assert (await api.put("k", tenant="red")).status_code == 410
    assert (await api.put("k", tenant="blue")).status_code == 201


async def test_a_bounded_token_sees_its_own_events_and_operations(api: Api) -> None:
    red = await api.token(Role.TENANT, tenant="red")
    await api.put("mine", tenant="red", host="node-0")
    await api.put("theirs", tenant="blue", host="node-1")
    await asyncio.gather(*api.tasks)
    await api.sequence()
    events = (await api.http.get("/v1/events", params={"kind": "allocation"}, headers=red)).json()["items"]
    assert {event["key"] for event in events} == {"mine"}
    work = (await api.http.get("/v1/operations", headers=red)).json()["items"]
    assert [operation["allocation"] for operation in work] == ["mine"]


async def test_a_database_that_does_not_answer_is_503_and_never_401(
    api: Api, identities: Callable[[], UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = await api.token(Role.OPERATOR)  # not yet remembered by the service
    await api.db.close()
    monkeypatch.setattr(api.db, "url", "postgresql://postgres@127.0.0.1:9/none")
    answers = [
        await api.http.get("/v1/pools", headers=fresh),
        await api.http.get("/v1/pools"),
        await api.put("a"),
        await api.http.delete("/v1/allocations/a"),
        await api.http.get("/v1/events", params={"wait": 5}),
    ]
    for response in answers:
        assert (response.status_code, response.json()["code"]) == (503, "database_unavailable"), response.text
        assert response.headers["retry-after"]
        assert response.json()["retryable"] is True
    assert (await api.http.get("/healthz")).status_code == 200
