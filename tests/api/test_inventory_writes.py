"""What people declare, written over HTTP: one thing, or all at once."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from fabric_manager.api import views
from fabric_manager.api.inventories import DiffView
from fabric_manager.domain.actor import Role
from fabric_manager.domain.units import GiB
from fabric_manager.store import work
from tests.api.conftest import Api
from tests.racks import ACTOR, mld_facts

POOL = {"kind": "mld", "tier": "high"}
DEVICE = {"serial": "serial-mld-0", "fabric": "rack-0", "pool": "mlds", "latency_ns": 200, "tier": "high"}
HOST = {"ports": [{"switch": "sw-0", "port": 0}]}
FABRIC = {"driver": "simulator", "endpoint": "simulator:none"}
KNOWN = {"pools/mlds": POOL, "devices/mld-0": DEVICE, "hosts/node-0": HOST, "fabrics/rack-0": FABRIC}
NEW = {
    "pools/fresh": POOL,
    "devices/fresh": {**DEVICE, "serial": "serial-fresh"},
    "hosts/fresh": {"ports": [{"switch": "sw-9", "port": 1}], "labels": {"rack": "9"}},
    "fabrics/fresh": FABRIC,
}
VIEWS = {"pools": views.PoolView, "devices": views.DeviceView, "hosts": views.HostView, "fabrics": views.FabricView}

every_known = pytest.mark.parametrize("path", KNOWN)
every_new = pytest.mark.parametrize("path", NEW)


async def told(api: Api) -> list[str]:
    """Types of all events so far, numbered or not."""
    query = (
        "SELECT type FROM (SELECT type, seq AS n, 0 AS o FROM event UNION ALL SELECT type, id, 1 FROM event_outbox) e"
    )
    async with api.db.snapshot() as tx:
        return list((await tx.execute(sa.text(f"{query} ORDER BY o, n"))).scalars())


async def scanned(api: Api, serial: str, *, port: int = 64) -> None:
    """What a scan writes of an MLD that hardware shows."""
    device = {"serial": serial, "switch": "sw-0", "port": port, "health": "ok", "firmware": "1"} | mld_facts(
        4, 64 * GiB
    )
    ids = [api.identities() for _ in range(4)]
    await work.discover_device(api.db, api.owned, device=device, new_id=api.identities(), ids=ids, actor=ACTOR)


async def released(api: Api, key: str) -> None:
    await api.bound(key, device="mld-0")
    await api.http.delete(f"/v1/allocations/{key}")
    await api.erased(key)


@every_new
async def test_put_makes_it_and_says_so_once(api: Api, path: str) -> None:
    made = await api.http.put(f"/v1/{path}", json=NEW[path])
    again = await api.http.put(f"/v1/{path}", json=NEW[path])
    assert (made.status_code, again.status_code) == (201, 200), made.text
    assert again.json() == made.json() == (await api.http.get(f"/v1/{path}")).json()
    assert again.headers["etag"] == made.headers["etag"] == f'"{made.json()["generation"]}"'
    VIEWS[path.split("/", maxsplit=1)[0]].model_validate_json(made.content)


@every_known
async def test_what_is_so_already_writes_nothing(api: Api, path: str) -> None:
    before, events = (await api.http.get(f"/v1/{path}")).json(), await told(api)
    answer = await api.http.put(f"/v1/{path}", json=KNOWN[path])
    assert (answer.status_code, answer.json()) == (200, before), answer.text
    assert await told(api) == events


async def test_a_change_is_an_event_with_what_changed_and_who(api: Api) -> None:
    changed = await api.http.put(
        "/v1/hosts/node-0", json={**HOST, "labels": {"row": "3"}}, headers={"X-Request-Id": "r-1"}
    )
    assert (changed.status_code, changed.json()["labels"]) == (200, {"row": "3"})
    await api.sequence()
    event = (await api.http.get("/v1/events", params={"kind": "host"})).json()["items"][-1]
    assert (event["type"], event["actor"], event["request_id"]) == ("host.declared", "admin", "r-1")
    assert (event["before"], event["after"]) == ({"labels": {}}, {"labels": {"row": "3"}})


async def test_objects_are_put_by_id_too_but_an_unknown_id_is_nothing(api: Api) -> None:
    found = (await api.http.get("/v1/hosts/node-0")).json()
    assert (await api.http.put(f"/v1/hosts/{found['id']}", json=HOST)).json() == found
    unknown = await api.http.put(f"/v1/hosts/{api.identities()}", json=HOST)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


@every_known
async def test_create_only_leaves_alone_what_is_there(api: Api, path: str) -> None:
    refused = await api.http.put(f"/v1/{path}", json=KNOWN[path], headers={"If-None-Match": "*"})
    assert (refused.status_code, refused.json()["code"]) == (412, "stale_generation")


@every_new
async def test_create_only_makes_what_is_not_there(api: Api, path: str) -> None:
    assert (await api.http.put(f"/v1/{path}", json=NEW[path], headers={"If-None-Match": "*"})).status_code == 201


@every_known
async def test_if_match_names_the_version_that_get_shows(api: Api, path: str) -> None:
    seen = await api.http.get(f"/v1/{path}")
    stale = {"If-Match": '"0"'}
    for method, body in (("PUT", KNOWN[path]), ("DELETE", None)):
        refused = await api.http.request(method, f"/v1/{path}", json=body, headers=stale)
        assert (refused.status_code, refused.json()["code"]) == (412, "stale_generation")
        assert refused.json()["have_generation"] == seen.json()["generation"]
    good = await api.http.put(f"/v1/{path}", json=KNOWN[path], headers={"If-Match": seen.headers["etag"]})
    assert good.status_code == 200, good.text


@every_new
async def test_if_match_of_nothing_makes_nothing(api: Api, path: str) -> None:
    for condition in ("*", '"1"'):
        refused = await api.http.put(f"/v1/{path}", json=NEW[path], headers={"If-Match": condition})
        assert refused.status_code == 412
    assert (await api.http.get(f"/v1/{path}")).status_code == 404


async def test_of_two_puts_of_one_version_one_is_done(api: Api) -> None:
    seen = {"If-Match": (await api.http.get("/v1/hosts/node-0")).headers["etag"]}
    answers = await asyncio.gather(
        *(api.http.put("/v1/hosts/node-0", json={**HOST, "labels": {"n": str(n)}}, headers=seen) for n in range(6))
    )
    assert sorted(a.status_code for a in answers) == [200, 412, 412, 412, 412, 412]


async def test_of_many_that_make_the_same_one_makes_it(api: Api) -> None:
    answers = await asyncio.gather(*(api.http.put("/v1/devices/fresh", json=NEW["devices/fresh"]) for _ in range(8)))
    assert sorted(a.status_code for a in answers) == [200] * 7 + [201]


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "an unknown field": ("hosts/h", {"colour": "red"}, "colour"),
    "another name than the path's": ("hosts/h", {"name": "g"}, "name"),
    "an unknown kind": ("pools/p", {"kind": "cxl"}, "kind"),
    "a pool that is not there": ("devices/d", {**DEVICE, "serial": "s", "pool": "none"}, "pool"),
    "a fabric that is not there": ("devices/d", {**DEVICE, "serial": "s", "fabric": "none"}, "fabric"),
    "a pool of another kind": ("devices/mld-0", {**DEVICE, "pool": "dcds"}, "pool"),
    "the serial of another": ("devices/mld-0", {**DEVICE, "pool": "mlds", "serial": "serial-dcd-0"}, "pool"),
    "the port of another": ("hosts/h", HOST, "ports"),
    "a port beyond": ("hosts/h", {"ports": [{"switch": "s", "port": 256}]}, "ports.0.port"),
    "a new fabric without endpoint": ("fabrics/f", {"driver": "simulator"}, "endpoint"),
    "a state of no kind": ("fabrics/rack-0", {**FABRIC, "admin_state": "off"}, "admin_state"),
    "reserved for whom": ("devices/mld-0", {**DEVICE, "reserved_for": ["prod"]}, "reserved_for.0"),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_declaration_names_the_field_and_writes_nothing(api: Api, what: str) -> None:
    path, body, field = BAD[what]
    before = await told(api)
    refused = await api.http.put(f"/v1/{path}", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "validation_failed"), refused.text
    assert [error["field"] for error in refused.json()["errors"]] == [field]
    assert await told(api) == before


async def test_a_node_is_one_host(api: Api) -> None:
    node = {"kubernetes": {"cluster": "prod", "node": "n"}}
    assert (await api.http.put("/v1/hosts/a", json=node)).status_code == 201
    refused = (await api.http.put("/v1/hosts/b", json=node)).json()
    assert [error["field"] for error in refused["errors"]] == ["kubernetes.node"]


async def test_who_reads_only_or_for_some_declares_nothing(api: Api) -> None:
    for headers in (
        await api.token(Role.VIEWER),
        await api.token(Role.CONTROLLER),
        await api.token(Role.OPERATOR, cluster="prod"),
    ):
        for method, path, body in (
            ("PUT", "hosts/h", {}),
            ("DELETE", "hosts/node-0", None),
            ("PUT", "inventory", {}),
            ("POST", "devices/mld-0/cordon", None),
        ):
            refused = await api.http.request(method, f"/v1/{path}", json=body, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), path
    assert (await api.http.put("/v1/hosts/h", json={}, headers=await api.token(Role.OPERATOR))).status_code == 201


async def test_what_is_in_use_is_not_deleted_and_says_by_what(api: Api) -> None:
    await api.bound("a", device="mld-0")
    for path, holder in (
        ("devices/mld-0", {"noun": "allocations", "count": 1, "first": ["a"]}),
        ("hosts/node-0", {"noun": "allocations", "count": 1, "first": ["a"]}),
        ("pools/mlds", {"noun": "devices", "count": 1, "first": ["mld-0"]}),
        ("fabrics/rack-0", {"noun": "devices", "count": 2, "first": ["dcd-0", "mld-0"]}),
    ):
        refused = await api.http.delete(f"/v1/{path}")
        assert (refused.status_code, refused.json()["code"]) == (409, "illegal_phase"), refused.text
        assert refused.json()["used_by"][0] == holder
        assert (await api.http.get(f"/v1/{path}")).status_code == 200


async def test_everything_can_go_once_nothing_is_used(api: Api) -> None:
    await released(api, "a")
    await api.put("on-dcd", device="dcd-0", host="node-1", size_bytes=GiB)
    await api.settle("on-dcd", "binding", "bind-read-back")
    await api.http.delete("/v1/allocations/on-dcd")
    await api.erased("on-dcd")
    paths = (
        "hosts/node-0",
        "hosts/node-1",
        "devices/mld-0",
        "devices/dcd-0",
        "pools/mlds",
        "pools/dcds",
        "fabrics/rack-0",
    )
    for path in paths:
        gone = await api.http.delete(f"/v1/{path}")
        assert (gone.status_code, gone.content) == (204, b""), gone.text
        assert (await api.http.get(f"/v1/{path}")).status_code == 404
        assert (await api.http.delete(f"/v1/{path}")).status_code == 404
    for noun in ("hosts", "devices", "logical-devices", "pools", "fabrics", "attachments"):
        assert (await api.http.get(f"/v1/{noun}")).json()["items"] == [], noun
    whole = {"fabrics": [], "pools": [], "devices": [], "hosts": []}
    assert (await api.http.get("/v1/inventory")).json() == whole
    assert (await told(api))[-7:] == ["host.deleted"] * 2 + ["device.retired"] * 2 + ["pool.deleted"] * 2 + [
        "fabric.deleted"
    ]
    # the story stays
    left = (await api.http.get("/v1/allocations/a")).json()
    assert (left["phase"], left["host"], left["pool"], left["request"]["host"]) == ("released", None, None, "node-0")
    assert (await api.http.get("/v1/allocations/a/timeline")).json()["entries"]
    assert [o["fabric"] for o in (await api.http.get("/v1/operations?allocation=a")).json()["items"]]
    assert (await api.http.get("/v1/invariants")).json()["violations"] == []


async def test_a_retired_device_stays_away_until_it_is_declared_again(api: Api) -> None:
    await released(api, "a")
    assert (await api.http.delete("/v1/devices/mld-0")).status_code == 204
    await scanned(api, "serial-mld-0")
    assert (await api.http.get("/v1/devices/mld-0")).status_code == 404
    assert (await api.put("b", pool="mlds")).json()["code"] == "no_matching_device"
    back = await api.http.put("/v1/devices/mld-0", json=DEVICE)
    assert (back.status_code, back.json()["health"], back.json()["capacity_bytes"]) == (201, "unknown", 0)
    again = await work.devices_absent(api.db, api.owned, serials=["serial-mld-0", "serial-dcd-0"], actor=ACTOR)
    assert again == ["serial-mld-0"]
    await scanned(api, "serial-mld-0")
    assert (await api.put("b", pool="mlds")).status_code == 201


async def test_a_host_interface_that_still_hangs_on_the_hosts_port_is_taken_up_again(api: Api) -> None:
    await api.put("a", device="dcd-0", host="node-0", size_bytes=GiB)
    await api.settle("a", "binding", "bind-read-back")
    first = (await api.http.get("/v1/attachments")).json()["items"][0]
    await api.http.delete("/v1/allocations/a")
    await api.erased("a")
    async with api.db.transaction() as tx:  # as the next scan reads it
        await tx.execute(
            sa.text(
                "UPDATE vppb SET state = 'bound_ld', port_number = 65, ld_id = 0 WHERE vcs_number = 0 AND number = :n"
            ),
            {"n": first["vppb"]},
        )
    assert (await api.http.delete("/v1/hosts/node-0")).status_code == 204
    assert (await api.http.put("/v1/hosts/other", json=HOST)).status_code == 201
    await api.put("b", device="dcd-0", host="node-1", size_bytes=GiB)
    await api.put("c", device="dcd-0", host="other", size_bytes=GiB)
    places = {
        a["host"]: (a["vcs"], a["vppb"], a["ld_id"]) for a in (await api.http.get("/v1/attachments")).json()["items"]
    }
    assert places["other"] == (first["vcs"], first["vppb"], 0)
    assert places["node-1"][2] == 1


async def test_another_serial_replaces_the_device_and_keeps_its_name(api: Api) -> None:
    replacement = {**DEVICE, "serial": "serial-new"}
    await api.bound("a", device="mld-0")
    refused = await api.http.put("/v1/devices/mld-0", json=replacement)
    assert (refused.status_code, refused.json()["used_by"][0]["first"]) == (409, ["a"])
    await api.http.delete("/v1/allocations/a")
    await api.erased("a")
    await api.http.post("/v1/devices/mld-0/cordon")
    await scanned(api, "serial-new", port=80)  # plugged before it was declared
    before = (await api.http.get("/v1/devices/mld-0")).json()
    done = await api.http.put("/v1/devices/mld-0", json=replacement, headers={"If-Match": f'"{before["generation"]}"'})
    after = done.json()
    assert (done.status_code, after["serial"], after["pool"]) == (200, "serial-new", "mlds"), done.text
    assert (after["admin_state"], after["free_bytes"]) == ("cordoned", 256 * GiB)
    assert after["generation"] > before["generation"]
    assert (await told(api))[-1] == "device.replaced"
    assert [d["name"] for d in (await api.http.get("/v1/devices")).json()["items"]] == ["dcd-0", "mld-0"]
    assert (await api.http.get("/v1/allocations/a/timeline")).status_code == 200


async def test_a_serial_that_another_name_has_is_not_taken_from_it(api: Api) -> None:
    assert (await api.http.put("/v1/devices/fresh", json=NEW["devices/fresh"])).status_code == 201
    refused = (await api.http.put("/v1/devices/fresh", json=DEVICE)).json()
    assert [error["field"] for error in refused["errors"]] == ["serial"]
    renamed = await api.http.put("/v1/devices/mld-zero", json=DEVICE)
    assert (renamed.status_code, renamed.json()["name"]) == (200, "mld-zero")
    assert (await api.http.get("/v1/devices/mld-0")).status_code == 404


async def test_a_port_that_memory_hangs_on_stays_with_its_host(api: Api) -> None:
    await api.bound("a", device="mld-0")
    refused = await api.http.put("/v1/hosts/node-0", json={"ports": []})
    assert (refused.status_code, refused.json()["used_by"][0]["first"]) == (409, ["a"])
    more = {"ports": [{"switch": "sw-0", "port": 7}, *HOST["ports"]]}
    assert len((await api.http.put("/v1/hosts/node-0", json=more)).json()["ports"]) == 2


async def test_the_kind_of_a_pool_stays_while_it_has_devices(api: Api) -> None:
    refused = await api.http.put("/v1/pools/mlds", json={**POOL, "kind": "dcd"})
    assert (refused.status_code, refused.json()["used_by"][0]["noun"]) == (409, "devices")


async def test_a_fabric_keeps_its_state_and_endpoint_unless_told(api: Api) -> None:
    paused = await api.http.put("/v1/fabrics/rack-0", json={**FABRIC, "admin_state": "paused"})
    assert paused.json()["admin_state"] == "paused"
    assert (await api.http.put("/v1/fabrics/rack-0", json={"driver": "simulator"})).json() == paused.json()
    moved = await api.http.put("/v1/fabrics/rack-0", json={**FABRIC, "endpoint": "simulator:elsewhere"})
    # whoever drives it has to open the other endpoint
    assert moved.json()["epoch"] == paused.json()["epoch"] + 1


async def test_a_cordoned_device_keeps_what_it_has_and_gets_nothing_new(api: Api) -> None:
    await api.bound("a", device="mld-0")
    cordoned = await api.http.post("/v1/devices/mld-0/cordon")
    assert (cordoned.status_code, cordoned.json()["admin_state"]) == (200, "cordoned")
    assert (await api.http.post("/v1/devices/mld-0/cordon")).json() == cordoned.json()
    refused = (await api.put("b", pool="mlds")).json()
    assert refused["code"] == "no_matching_device"
    assert [step["left"] for step in refused["funnel"] if step["filter"] == "enabled"] == [1]
    assert await api.phase("a") == "bound"
    assert (await api.http.post("/v1/devices/mld-0/uncordon", headers={"If-Match": '"0"'})).status_code == 412
    assert (await api.http.post("/v1/devices/mld-0/uncordon")).json()["admin_state"] == "enabled"
    assert (await api.put("b", pool="mlds")).status_code == 201
    assert [t for t in await told(api) if t.endswith("cordoned")] == ["device.cordoned", "device.uncordoned"]
    assert (await api.http.post("/v1/devices/none/cordon")).status_code == 404


async def test_a_reserved_device_serves_only_those(api: Api) -> None:
    shown = await api.http.put("/v1/devices/mld-0", json={**DEVICE, "reserved_for": ["cluster:prod", "tenant:red"]})
    assert shown.json()["reserved_for"] == ["cluster:prod", "tenant:red"]
    refused = (await api.put("a", pool="mlds", tenant="blue")).json()
    assert refused["code"] == "no_matching_device"
    assert (await api.put("a", pool="mlds", tenant="red")).status_code == 201
    consumer = {"kind": "ResourceClaim", "cluster": "prod", "uid": "u"}
    assert (await api.put("b", pool="mlds", tenant="blue", consumer=consumer)).status_code == 201


async def apply(api: Api, inventory: Any, *, dry_run: bool = False, **options: Any) -> Any:
    return await api.http.put(
        "/v1/inventory", json=inventory, params={"dry_run": dry_run} if dry_run else {}, **options
    )


async def test_what_was_exported_changes_nothing(api: Api) -> None:
    exported = await api.http.get("/v1/inventory")
    events = await told(api)
    for dry_run in (True, False):
        answer = await apply(api, exported.json(), dry_run=dry_run)
        assert answer.json() == {"dry_run": dry_run, "diff": []}, answer.text
    assert await told(api) == events
    unchanged = await api.http.get("/v1/inventory", headers={"If-None-Match": exported.headers["etag"]})
    assert unchanged.status_code == 304


async def test_the_export_holds_what_was_declared_and_nothing_that_was_read(api: Api) -> None:
    await scanned(api, "serial-nobody-declared", port=90)
    exported = (await api.http.get("/v1/inventory")).json()
    assert [device["name"] for device in exported["devices"]] == ["dcd-0", "mld-0"]
    for noun, things in exported.items():
        for thing in things:
            facts = {name: value for name, value in thing.items() if name != "name"}
            assert (await api.http.put(f"/v1/{noun}/{thing['name']}", json=facts)).status_code == 200
            assert (await api.http.put(f"/v1/{noun}/{thing['name']}", json=thing)).status_code == 200


async def test_the_diff_is_shown_and_then_done(api: Api) -> None:
    wish = {"pools": [{"name": "mlds", **POOL, "tier": "low"}], "hosts": [{"name": "fresh"}]}
    before = await told(api)
    planned = await apply(api, wish, dry_run=True)
    DiffView.model_validate_json(planned.content)
    assert planned.json()["diff"][0] == {
        "noun": "pool",
        "name": "mlds",
        "action": "change",
        "fields": [{"field": "tier", "have": "high", "want": "low"}],
    }
    assert [(c["noun"], c["action"]) for c in planned.json()["diff"]] == [("pool", "change"), ("host", "create")]
    assert await told(api) == before
    assert (await api.http.get("/v1/hosts/fresh")).status_code == 404
    done = await apply(api, wish)
    assert done.json() == {"dry_run": False, "diff": planned.json()["diff"]}
    assert (await api.http.get("/v1/pools/mlds")).json()["tier"] == "low"
    assert (await told(api))[len(before) :] == ["pool.declared", "host.declared"]


async def test_one_bad_thing_and_nothing_happened(api: Api) -> None:
    before, events = (await api.http.get("/v1/inventory")).json(), await told(api)
    wish = {
        "pools": [{"name": "fresh", **POOL}],
        "hosts": [{"name": "h1"}, {"name": "h2", **HOST}],
    }
    for dry_run in (True, False):
        refused = (await apply(api, wish, dry_run=dry_run)).json()
        assert (refused["status"], refused["code"]) == (422, "validation_failed")
        assert (refused["noun"], refused["name"]) == ("host", "h2")
        assert [error["field"] for error in refused["errors"]] == ["hosts.1.ports"]
    malformed = (await apply(api, {"hosts": [{"name": "h1"}, {"name": "h2", "x": 1}]})).json()
    assert [error["field"] for error in malformed["errors"]] == ["hosts.1.x"]
    assert (await api.http.get("/v1/inventory")).json() == before
    assert await told(api) == events


async def test_an_inventory_is_applied_to_the_version_that_was_read(api: Api) -> None:
    etag = (await api.http.get("/v1/inventory")).headers["etag"]
    wish = {"hosts": [{"name": "fresh"}]}
    assert (await apply(api, wish, headers={"If-Match": etag})).status_code == 200
    assert (await apply(api, {"hosts": [{"name": "other"}]}, headers={"If-Match": etag})).status_code == 412


async def test_thousands_are_applied_at_once(api: Api) -> None:
    wish = {
        "pools": [{"name": "many", "kind": "mld"}],
        "devices": [
            {"name": f"m-{n}", "serial": f"M-{n}", "fabric": "rack-0", "pool": "many", "labels": {"n": str(n)}}
            for n in range(3000)
        ],
    }
    planned, done = await apply(api, wish, dry_run=True), await apply(api, wish)
    assert done.status_code == 200, done.text
    assert len(planned.json()["diff"]) == len(done.json()["diff"]) == 3001
    assert (await apply(api, wish)).json()["diff"] == []
