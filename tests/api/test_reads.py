"""What dashboards poll: lists with ETags, the graph, sums and alarms."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from fabric_manager.api import glance_views, switch_views
from fabric_manager.domain.actor import Role
from fabric_manager.domain.lifecycle import Event, Phase
from fabric_manager.domain.units import GiB
from fabric_manager.store import alarms
from tests.api.conftest import Api
from tests.api.statements import relations, statements_of
from tests.store.allocations import Life

LISTS: dict[str, type[BaseModel]] = {
    "switches": switch_views.SwitchPage,
    "ports": switch_views.PortPage,
    "vcs": switch_views.VcsPage,
    "bindings": switch_views.SegmentBindingPage,
}
TAGGED = (
    "allocations",
    "attachments",
    "bindings",
    "devices",
    "devices?cluster=prod",
    "extents",
    "fabrics",
    "hosts",
    "logical-devices",
    "operations",
    "pools",
    "pools?cluster=prod",
    "ports",
    "switches",
    "topology",
    "vcs",
)
BOOKS = {"api_token", "event_head", "event_kind_head", "event_outbox", "change_mark", "allocation_key"}


def life(api: Api) -> Life:
    return Life(db=api.db, identities=api.identities, owned=api.owned)


async def read(api: Api, path: str, **headers: str) -> httpx.Response:
    return await api.http.get(f"/v1/{path}", headers=headers)


async def numbered(api: Api) -> None:
    """Every event and mark is counted."""
    for _ in range(10):
        await api.sequence()
        async with api.db.snapshot() as tx:
            left = await tx.execute(
                sa.text("SELECT count(*) FROM change_mark UNION ALL SELECT count(*) FROM event_outbox")
            )
            if sum(left.scalars()) == 0:
                return
    raise AssertionError("still uncounted")


async def test_the_parts_of_switches_are_listed_and_read_one_by_one(api: Api) -> None:
    await api.bound("on-ld", device="mld-0")
    for noun, model in LISTS.items():
        listed = await read(api, noun)
        model.model_validate_json(listed.content)
        assert listed.json()["items"], noun
        for item in listed.json()["items"]:
            assert (await read(api, f"{noun}/{item['id']}")).json() == item
    (bound,) = (await read(api, "bindings?allocation=on-ld&phase=bound&device=mld-0&host=node-0")).json()["items"]
    assert (bound["allocation"], bound["host"], bound["switch"]) == ("on-ld", "node-0", "sw-0")
    vcs = (await read(api, f"vcs/sw-0:{bound['vcs']}")).json()
    assert vcs["vppbs"][bound["vppb"]]["attachment"] == bound["attachment"]
    assert (await read(api, "ports/sw-0:64")).json()["device"] == "mld-0"
    assert (await read(api, "ports/sw-0:0")).json()["host"] == "node-0"


async def test_a_bounded_token_sees_its_own_bindings_only(api: Api) -> None:
    await api.bound("mine", tenant="red")
    red, blue = await api.token(Role.TENANT, tenant="red"), await api.token(Role.TENANT, tenant="blue")
    assert len((await read(api, "bindings", **red)).json()["items"]) == 1
    assert (await read(api, "bindings", **blue)).json()["items"] == []


async def test_the_topology_is_one_graph(api: Api) -> None:
    await api.bound("on-ld", device="mld-0")
    graph = (await read(api, "topology")).json()
    glance_views.TopologyView.model_validate(graph)
    nodes = {node["id"] for part in ("fabrics", "switches", "ports", "vcs", "devices", "hosts") for node in graph[part]}
    assert all({edge["source"], edge["target"]} <= nodes for edge in graph["edges"])
    (attached,) = (edge for edge in graph["edges"] if edge["kind"] == "attached")
    names = {node["id"]: node["name"] for part in ("devices", "hosts") for node in graph[part]}
    assert (names[attached["source"]], names[attached["target"]]) == ("node-0", "mld-0")
    assert graph["truncated"] == []


async def test_a_304_reads_no_listed_row(api: Api) -> None:
    await api.bound("on-ld", device="mld-0", consumer={"kind": "Pod", "cluster": "prod"})
    await api.put("on-dcd", device="dcd-0", host="node-1", size_bytes=GiB)
    await numbered(api)
    for path in TAGGED:
        tag = (await read(api, path)).headers["etag"]
        with statements_of(api.db) as ran:
            unchanged = await read(api, path, **{"If-None-Match": tag})
        assert (unchanged.status_code, unchanged.content) == (304, b""), path
        assert unchanged.headers["fabric-seq"].isdigit()
        touched = set().union(*[await relations(api.db, each) for each in ran])
        assert touched <= BOOKS, path


async def test_another_question_has_another_tag(api: Api) -> None:
    await numbered(api)
    paths = ("devices", "devices?sort=-name", "devices?kind=mld", "devices?cluster=a", "devices?limit=1", "pools")
    tags = [(await read(api, path)).headers["etag"] for path in paths]
    assert len(set(tags)) == len(paths)
    red = await api.token(Role.TENANT, tenant="red")
    assert (await read(api, "operations", **red)).headers["etag"] != (await read(api, "operations")).headers["etag"]


async def test_no_304_while_the_outbox_holds_events_of_these_kinds(api: Api) -> None:
    await numbered(api)
    tag = (await read(api, "allocations")).headers["etag"]
    await life(api).claim("a")  # past the API, so nobody numbers its event yet
    waiting = await read(api, "allocations", **{"If-None-Match": tag})
    assert waiting.status_code == 200
    assert "etag" not in waiting.headers
    switches = await read(api, "switches", **{"If-None-Match": (await read(api, "switches")).headers["etag"]})
    assert switches.status_code == 304, "not of its kinds"
    await numbered(api)
    assert (await read(api, "allocations", **{"If-None-Match": tag})).status_code == 200


Step = Callable[[Life], Awaitable[object]]
STEPS: dict[str, Step] = {
    "a claim": lambda it: it.claim("a", host="node-0", reservation_ttl_s=900),
    "a read-back": lambda it: it.settle("a", Event.BIND_READ_BACK),
    "online": lambda it: it.report("a", "online"),
    "online again, with more": lambda it: it.report("a", "online", numa_node=2),
    "a reservation": lambda it: it.claim("b", bind=False, reservation_ttl_s=900),
    "a replay that renews it": lambda it: it.ask("b", bind=False, reservation_ttl_s=900),
    "a release": lambda it: it.release("a"),
    "offline failed": lambda it: it.report("a", "offline_failed"),
    "offline": lambda it: it.report("a", "offline"),
    "gone": lambda it: it.settle("a", Event.GONE),
    "a step and its evidence": lambda it: it.prove("a"),
    "clean": lambda it: it.settle("a", Event.SANITIZED_RELEASE),
    "tombstones over": lambda it: it.run("UPDATE allocation_key SET expires_at = now() WHERE key = 'a'"),
    "forgotten": lambda it: it.db.call("forget_allocations", {"batch_max": 10}),
    "a link": lambda it: it.run("UPDATE port SET link_width = 8, generation = generation + 1 WHERE number = 64"),
    "an owner": lambda it: it.run("UPDATE fabric SET owner = 'other/1', generation = generation + 1"),
    "health": lambda it: it.run("UPDATE device SET health = 'degraded' WHERE name = 'mld-0'"),
    "an LD": lambda it: it.run("UPDATE logical_device SET dirty = true WHERE ld_id = 3"),
    "a vPPB": lambda it: it.run("UPDATE vppb SET state = 'busy' WHERE number = 3"),
    "a host's label": lambda it: it.run('UPDATE host SET labels = \'{"a": "b"}\', generation = generation + 1'),
}


async def test_a_list_that_changed_is_never_304(api: Api) -> None:
    """Whatever happens, with or without an event: what is answered 304 is what the caller has."""
    it = life(api)
    known: dict[str, tuple[str, Any]] = {}
    for what, step in STEPS.items():
        await step(it)
        for counted in (False, True):
            if counted:
                await numbered(api)
            for path in TAGGED:
                whole = await read(api, path)
                body = {name: value for name, value in whole.json().items() if name != "as_of"}
                if path in known:
                    again = await read(api, path, **{"If-None-Match": known[path][0]})
                    assert again.status_code == 200 or known[path][1] == body, (what, path)
                if "etag" in whole.headers:
                    known[path] = (whole.headers["etag"], body)
                assert counted is False or "etag" in whole.headers, (what, path)


async def test_an_unknown_filter_or_sort_is_named_with_what_is_allowed(api: Api) -> None:
    refused = (await read(api, "devices?colour=red")).json()
    assert refused["errors"][0]["field"] == "colour"
    assert "admin_state, cluster, cursor, fabric, health, kind, limit, name, pool, sort" in refused["detail"]
    refused = (await read(api, "devices?sort=price")).json()
    assert refused["errors"][0]["field"] == "sort"
    assert "'-name'" in refused["detail"]


@pytest.mark.parametrize(
    ("path", "field"),
    [("devices", "name"), ("devices?", "number"), ("operations", "created_at"), ("allocations", "created_at")],
)
async def test_a_sort_runs_both_ways_and_through_pages(api: Api, path: str, field: str) -> None:
    for key in ("a", "b", "c"):
        await api.put(key, host="node-0", size_bytes=GiB)

    async def walk(sort: str) -> list[str]:
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            query = {"sort": sort, "limit": 1} | ({"cursor": cursor} if cursor else {})
            page = (await api.http.get(f"/v1/{path.rstrip('?')}", params=query)).json()
            found += [item["id"] for item in page["items"]]
            cursor = page["next_cursor"]
        return found

    assert await walk(field) == list(reversed(await walk(f"-{field}")))
    assert len(await walk(field)) > 1


async def test_allocations_on_a_device_are_listed_once_and_in_order(api: Api) -> None:
    for key in ("a", "b", "c"):
        await api.put(key, device="mld-0")
    await api.put("elsewhere", device="dcd-0", size_bytes=GiB)
    first = (await read(api, "allocations?device=mld-0&limit=2")).json()
    rest = (await read(api, f"allocations?device=mld-0&limit=2&cursor={first['next_cursor']}")).json()
    assert [a["key"] for a in first["items"] + rest["items"]] == ["c", "b", "a"]
    assert rest["next_cursor"] is None
    aged = "allocations?older_than_s="
    assert [len((await read(api, aged + age)).json()["items"]) for age in ("0", "3600")] == [4, 0]
    assert "etag" not in (await read(api, aged + "0")).headers, "time alone changes it"


async def test_the_summary_is_the_sum_of_what_is_there(api: Api) -> None:
    it = life(api)
    for phase in (Phase.BOUND, Phase.SANITIZING, Phase.RELEASED, Phase.FAILED):
        await it.in_phase(f"is-{phase}", phase, device="mld-0")
    for _ in range(3):
        await api.put("too-big", size_bytes=1 << 50)
    summary = (await read(api, "summary")).json()
    glance_views.SummaryView.model_validate(summary)
    assert summary["allocations"] == {"bound": 1, "failed": 1, "sanitizing": 1}
    assert summary["total"]["bytes_by_phase"] == {"bound": 64 * GiB, "sanitizing": 64 * GiB}
    assert sum(summary["refusals"].values()) == 3
    assert (summary["fabrics"], summary["hosts"], summary["devices"]) == ({"unreachable": 1}, {"silent": 2}, {"ok": 2})
    assert summary["oldest_operation"]["allocation"] == "is-sanitizing"
    pools = {pool["name"]: pool for pool in (await read(api, "pools")).json()["items"]}
    buckets = [name for name in summary["total"] if name.endswith("_bytes")]
    for shown in summary["pools"]:
        assert {name: shown[name] for name in buckets} == {name: pools[shown["pool"]][name] for name in buckets}
    for name in buckets:
        assert summary["total"][name] == sum(pool[name] for pool in pools.values())


async def test_every_open_condition_is_an_alarm_until_it_is_over(api: Api) -> None:
    it = life(api)
    for phase in (Phase.LOST, Phase.QUARANTINED, Phase.RELEASE_BLOCKED, Phase.SANITIZING):
        await it.in_phase(f"is-{phase}", phase, device="mld-0")
    await it.claim("late", device="dcd-0", host="node-1", size_bytes=GiB)
    for statement in (
        "UPDATE allocation SET state_changed_at = now() - interval '1 day'",
        "UPDATE device SET health = 'failed' WHERE name = 'mld-0'",
        "UPDATE operation SET deadline_at = now() - interval '1 min', attempts = 99 WHERE state = 'pending'",
        "UPDATE vppb SET state = 'bound_ld', updated_at = now() - interval '1 h' WHERE vcs_number = 1 AND number = 3",
        "UPDATE port SET link_width = 8 WHERE number = 65",
        "UPDATE host SET fenced_at = now(), fence_reason = 'smoke' WHERE name = 'node-1'",
        "UPDATE fabric SET owned_until = now() - interval '1 h'",
        "UPDATE event_outbox SET at = now() - interval '1 h'",
    ):
        await it.run(statement)
    shown = (await read(api, "alarms")).json()
    glance_views.AlarmsView.model_validate(shown)
    kinds = {alarm["kind"] for alarm in shown["items"]}
    never_here = {"fabric_degraded", "device_degraded", "device_absent"}
    assert kinds == {rule.kind for rule in alarms.RULES} - never_here
    lost = next(alarm for alarm in shown["items"] if alarm["kind"] == "allocation_lost")
    assert (lost["object"], lost["severity"], lost["runbook"]) == (
        "is-lost",
        "critical",
        "docs/runbooks.md#allocation-lost",
    )
    assert lost["age_s"] >= 86_000

    blue = await api.token(Role.TENANT, tenant="blue")
    others = {alarm["kind"] for alarm in (await read(api, "alarms", **blue)).json()["items"]}
    assert not {kind for kind in others if kind.startswith(("allocation", "operation"))}

    await it.run("UPDATE host SET fenced_at = NULL")
    await it.run("UPDATE device SET health = 'ok'")
    after = {alarm["kind"] for alarm in (await read(api, "alarms")).json()["items"]}
    assert kinds - after == {"host_fenced", "device_failed"}
