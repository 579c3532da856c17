"""The main job over HTTP: ask, ask again, look, give back."""

import asyncio
from collections import Counter

from fabric_manager.domain.units import GiB
from tests.api.conftest import Api


async def test_a_first_put_is_201_and_shows_the_whole_object(api: Api) -> None:
    response = await api.put("a", host="node-0", labels={"team": "ml"})
    body = response.json()
    assert response.status_code == 201, body
    assert (body["key"], body["phase"], body["host"], body["granted_bytes"]) == ("a", "binding", "node-0", 64 * GiB)
    assert body["operation"]["goal"] == "bind"
    assert response.headers["etag"] == f'"{body["generation"]}"'
    assert body["request"]["bind"] is True


async def test_the_same_put_again_is_200_with_the_same_object(api: Api) -> None:
    first, second = await api.put("a"), await api.put("a")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["segments"] == second.json()["segments"]


async def test_another_request_under_the_same_key_is_409_and_says_what_differs(api: Api) -> None:
    await api.put("a")
    body = (await api.put("a", size_bytes=1 * GiB)).json()
    assert (body["status"], body["code"], body["terminal_for"]) == (409, "key_reuse_mismatch", "claim")
    assert body["differs"] == [{"field": "size_bytes", "have": 64 * GiB, "got": 1 * GiB}]


async def test_a_hundred_equal_puts_at_once_make_one_allocation(api: Api) -> None:
    answers = await asyncio.gather(*(api.put("a") for _ in range(100)))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 99}
    seen = [(a["key"], a["id"], str(a["request"]), str(a["segments"])) for a in (r.json() for r in answers)]
    assert len(set(seen)) == 1


async def test_sixty_four_clients_for_one_device_with_room_for_four(api: Api) -> None:
    answers = await asyncio.gather(*(api.put(f"k{n}", device="mld-0", bind=False) for n in range(64)))
    assert Counter(answer.status_code for answer in answers) == {201: 4, 409: 60}
    refusals = [answer.json() for answer in answers if answer.status_code == 409]
    assert {refusal["code"] for refusal in refusals} == {"insufficient_capacity"}
    assert all(refusal["funnel"] for refusal in refusals)
    device = (await api.http.get("/v1/devices/mld-0")).json()
    assert (device["free_bytes"], device["allocated_bytes"]) == (0, 256 * GiB)


async def test_a_refusal_has_a_timeline_though_it_left_nothing_behind(api: Api) -> None:
    refusal = (await api.put("big", size_bytes=1 << 50)).json()
    assert refusal["code"] == "insufficient_capacity"
    assert (await api.http.get("/v1/allocations/big")).status_code == 404
    story = (await api.http.get("/v1/allocations/big/timeline")).json()
    assert [entry["title"] for entry in story["entries"]] == ["allocation.refused"]
    assert story["entries"][0]["facts"]["request_id"] == refusal["request_id"]


async def test_the_timeline_of_an_unknown_key_is_404(api: Api) -> None:
    assert (await api.http.get("/v1/allocations/nobody/timeline")).json()["code"] == "not_found"


async def test_release_of_a_reservation_is_204_and_a_late_put_gets_410(api: Api) -> None:
    await api.put("a")
    assert (await api.http.delete("/v1/allocations/a")).status_code == 204
    late = await api.put("a")
    assert (late.status_code, late.json()["code"]) == (410, "released")
    assert (await api.http.get("/v1/allocations/a")).json()["phase"] == "released"


async def test_a_release_that_overtakes_its_request_wins(api: Api) -> None:
    assert (await api.http.delete("/v1/allocations/a")).status_code == 204
    assert (await api.http.get("/v1/allocations/a")).status_code == 404
    assert (await api.put("a")).status_code == 410


async def test_release_of_a_bound_one_is_202_with_its_operation_and_204_once_it_is_erased(api: Api) -> None:
    await api.bound("a")
    response = await api.http.delete("/v1/allocations/a")
    assert (response.status_code, response.json()["operation"]["goal"]) == (202, "release")
    await api.erased("a")
    assert (await api.http.delete("/v1/allocations/a")).status_code == 204


async def test_release_while_the_node_reports_online_is_blocked(api: Api) -> None:
    segment = (await api.bound("a"))["segments"][0]["id"]
    report = {"boot_id": "boot-1", "segments": [{"id": segment, "phase": "online", "numa_node": 2}]}
    online = await api.http.post("/v1/allocations/a/node-state", json=report)
    assert (online.status_code, online.json()["phase"]) == (200, "online")
    assert online.json()["segments"][0]["numa_node"] == 2
    assert (await api.http.delete("/v1/allocations/a")).json()["phase"] == "release_blocked"
    again = await api.http.post("/v1/allocations/a/node-state", json=report)
    assert (again.status_code, again.json()["code"]) == (409, "releasing")


async def test_a_reservation_is_bound_later_and_unbound_again(api: Api) -> None:
    assert (await api.put("a")).json()["phase"] == "reserved"
    asked = await api.http.put("/v1/allocations/a/binding", json={"host": "node-1"})
    assert (asked.status_code, asked.json()["phase"]) == (202, "binding")
    await api.settle("a", "binding", "bind-read-back")
    again = await api.http.put("/v1/allocations/a/binding", json={"host": "node-1"})
    assert (again.status_code, again.json()["phase"]) == (200, "bound")
    other = await api.http.put("/v1/allocations/a/binding", json={"host": "node-0"})
    assert (other.status_code, other.json()["code"]) == (409, "illegal_phase")
    off = await api.http.delete("/v1/allocations/a/binding")
    assert (off.status_code, off.json()["operation"]["goal"]) == (202, "unbind")


async def test_put_waits_until_bound_when_asked_to(api: Api) -> None:
    asking = asyncio.create_task(api.put("a", host="node-0", headers={"Prefer": "wait=20"}))
    await api.sees("a", "binding")
    await api.settle("a", "binding", "bind-read-back")
    response = await asyncio.wait_for(asking, 10)
    assert (response.status_code, response.json()["phase"]) == (201, "bound")


async def test_put_does_not_wait_when_nothing_is_to_be_bound(api: Api) -> None:
    response = await asyncio.wait_for(api.put("a", headers={"Prefer": "wait=20"}), 5)
    assert response.json()["phase"] == "reserved"


async def test_put_answers_with_what_is_so_when_the_wait_is_over(api: Api) -> None:
    response = await api.put("a", host="node-0", headers={"Prefer": "respond-async, wait=1"})
    assert (response.status_code, response.json()["phase"]) == (201, "binding")


async def test_get_waits_for_a_phase(api: Api) -> None:
    await api.put("a", host="node-0")
    looking = asyncio.create_task(api.http.get("/v1/allocations/a", params={"wait": 20, "phase": ["bound", "failed"]}))
    await asyncio.sleep(0.2)
    await api.settle("a", "binding", "bind-read-back")
    assert (await asyncio.wait_for(looking, 10)).json()["phase"] == "bound"


async def test_delete_waits_for_the_bytes_when_asked_to(api: Api) -> None:
    await api.bound("a")
    leaving = asyncio.create_task(api.http.delete("/v1/allocations/a", headers={"Prefer": "wait=20"}))
    await api.sees("a", "releasing")
    await api.erased("a")
    assert (await asyncio.wait_for(leaving, 10)).status_code == 204


async def test_an_unchanged_object_is_304(api: Api) -> None:
    tag = (await api.put("a")).headers["etag"]
    assert (await api.http.get("/v1/allocations/a", headers={"If-None-Match": tag})).status_code == 304
    await api.http.delete("/v1/allocations/a")
    assert (await api.http.get("/v1/allocations/a", headers={"If-None-Match": tag})).status_code == 200


async def test_a_delete_that_means_another_generation_is_412(api: Api) -> None:
    await api.put("a")
    stale = await api.http.delete("/v1/allocations/a", headers={"If-Match": '"99"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale_generation")
    assert (await api.http.get("/v1/allocations/a")).json()["phase"] == "reserved"


async def test_a_reservation_for_a_claim_expires_by_default_and_others_do_not(api: Api) -> None:
    claim = (await api.put("a", consumer={"kind": "ResourceClaim", "uid": "u"})).json()
    other = (await api.put("b")).json()
    assert claim["request"]["reservation_ttl_s"] == 900
    assert claim["reservation_expires_at"]
    assert other["reservation_expires_at"] is None


async def test_a_list_is_filtered_and_paged_newest_first(api: Api) -> None:
    for n in range(4):
        await api.put(f"k{n}", tenant="red" if n % 2 else "blue", consumer={"kind": "VM", "uid": str(n)})
    first = (await api.http.get("/v1/allocations", params={"limit": 3})).json()
    assert [item["key"] for item in first["items"]] == ["k3", "k2", "k1"]
    rest = (await api.http.get("/v1/allocations", params={"limit": 3, "cursor": first["next_cursor"]})).json()
    assert [item["key"] for item in rest["items"]] == ["k0"]
    assert rest["next_cursor"] is None

    async def keys(**filters: str | int | list[str]) -> list[str]:
        page = (await api.http.get("/v1/allocations", params=filters)).json()
        return [item["key"] for item in page["items"]]

    assert await keys(tenant="red") == ["k3", "k1"]
    assert await keys(claim_uid="2", phase=["reserved", "bound"]) == ["k2"]
    assert await keys(phase="bound") == []
    assert await keys(pool="mlds", device="mld-0", consumer_kind="VM", older_than_s=0) == ["k3", "k2", "k1", "k0"]
    assert await keys(older_than_s=3600) == []
    assert await keys(host="node-0") == []


async def test_every_write_wakes_the_reconciler(api: Api) -> None:
    before = api.woken
    await api.put("a")
    await api.http.delete("/v1/allocations/a")
    assert api.woken == before + 2
