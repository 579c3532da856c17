"""`publishable_bytes` against the definition, worked out here from single rows."""

from collections.abc import Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from fabric_manager.domain.lifecycle import Phase
from fabric_manager.domain.units import GiB
from tests.api.conftest import Api
from tests.store.allocations import Life

CLUSTERS = ("prod", "dev", "nobody")
LIVE = [phase for phase in Phase if phase not in (Phase.RELEASED, Phase.FAILED)]
BACK = (Phase.RELEASING, Phase.RELEASE_BLOCKED)
Row = Mapping[str, Any]


async def rows(api: Api, query: str) -> list[Row]:
    async with api.db.snapshot() as tx:
        return [dict(row) for row in (await tx.execute(sa.text(query))).mappings()]


async def by_definition(api: Api, cluster: str) -> dict[str, int]:
    """design.md §8, term by term, each byte subtracted once."""
    segments = await rows(
        api,
        """SELECT s.*, a.cluster, a.size_bytes AS asked_bytes FROM segment s JOIN allocation a ON a.id = s.allocation_id
           ORDER BY s.allocation_id, s.id""",
    )
    asked_left: dict[Any, int] = {}
    for s in segments:
        if s["phase"] in LIVE:
            left = asked_left.get(s["allocation_id"], s["asked_bytes"])
            s["useful"] = min(left, s["size_bytes"])
            asked_left[s["allocation_id"]] = left - s["useful"]
    answer = {}
    for d in await rows(api, "SELECT * FROM device"):
        live = [s for s in segments if s["device_no"] == d["number"] and s["phase"] in LIVE]
        held = [s for s in live if s["phase"] not in (Phase.SANITIZING, Phase.QUARANTINED)]
        own = [s for s in held if s["cluster"] == cluster]
        others = sum(s["size_bytes"] for s in held if s["cluster"] != cluster)
        back = sum(s["size_bytes"] for s in own if s["phase"] in BACK)
        waste = sum(s["size_bytes"] - s["useful"] for s in own if s["phase"] not in BACK)
        offers = d["health"] == "ok" and d["admin_state"] == "enabled"
        offers = offers and (not d["reserved_for"] or f"cluster:{cluster}" in d["reserved_for"])
        answer[d["name"]] = (
            d["capacity_bytes"]
            - d["withdrawn_bytes"]
            - d["sanitizing_bytes"]
            - d["quarantined_bytes"]
            - others
            - back
            - waste
            if offers
            else sum(s["useful"] for s in own if s["phase"] not in BACK)
        )
    return answer


async def shown(api: Api, noun: str, cluster: str) -> dict[str, int]:
    items = (await api.http.get(f"/v1/{noun}", params={"cluster": cluster})).json()["items"]
    return {item["name"]: item["publishable_bytes"] for item in items}


async def agree(api: Api, what: str) -> None:
    for cluster in CLUSTERS:
        wanted = await by_definition(api, cluster)
        assert await shown(api, "devices", cluster) == wanted, (what, cluster)
        assert await shown(api, "pools", cluster) == {"mlds": wanted["mld-0"], "dcds": wanted["dcd-0"]}, (what, cluster)


@pytest.mark.parametrize("phase", LIVE)
async def test_it_is_what_the_definition_says_in_every_phase(api: Api, phase: Phase) -> None:
    life = Life(db=api.db, identities=api.identities, owned=api.owned)
    for n, cluster in enumerate(("prod", "dev", None)):
        # every one of them wastes bytes by rounding
        body = {"consumer": {"kind": "Pod", "cluster": cluster}} if cluster else {}
        assert (await api.put(f"ld-{n}", device="mld-0", size_bytes=50 * GiB + 1, **body)).status_code == 201
        assert (await api.put(f"run-{n}", device="dcd-0", size_bytes=GiB + 1, **body)).status_code == 201
    await agree(api, "reserved")
    consumer = {"kind": "Pod", "cluster": "prod"}
    await api.put("moved", device="mld-0", size_bytes=40 * GiB, consumer=consumer, bind=False)
    await lead(life, "moved", phase)
    await agree(api, phase)
    for change in (
        "UPDATE device SET reserved_for = ARRAY['cluster:prod']",
        "UPDATE device SET reserved_for = ARRAY['tenant:red']",
        "UPDATE device SET reserved_for = '{}', admin_state = 'cordoned'",
        "UPDATE device SET admin_state = 'enabled', health = 'degraded'",
        "UPDATE device SET health = 'ok', withdrawn_bytes = free_bytes, free_bytes = 0",
    ):
        await life.run(change)
        await agree(api, change)


async def lead(life: Life, key: str, phase: Phase) -> None:
    """An allocation that is there, to `phase`."""
    if phase is not Phase.RESERVED:
        await life.bind(key)
    steps: dict[Phase, list[Any]] = {
        Phase.BOUND: ["bind-read-back"],
        Phase.ONLINE: ["bind-read-back", "online"],
        Phase.RELEASE_BLOCKED: ["bind-read-back", "online", "release"],
        Phase.RELEASING: ["bind-read-back", "release"],
        Phase.SANITIZING: ["bind-read-back", "release", "gone"],
        Phase.LOST: ["bind-read-back", "gone"],
        Phase.QUARANTINED: ["bind-read-back", "identity-changed"],
    }
    for step in steps.get(phase, []):
        if step == "online":
            await life.report(key, "online")
        elif step == "release":
            await life.release(key)
        else:
            await life.settle(key, step)
    assert (await life.get(key)).phase is phase


async def test_a_request_over_several_segments_wastes_only_what_it_does_not_reach(api: Api) -> None:
    life = Life(db=api.db, identities=api.identities, owned=api.owned)
    consumer = {"kind": "Pod", "cluster": "prod"}
    await api.put("wide", device="mld-0", size_bytes=60 * GiB, consumer=consumer, bind=False)
    await life.run(
        """INSERT INTO segment (id, allocation_id, device_no, size_bytes, phase)
           SELECT :id, a.id, d.number, 8 * 1024::bigint ^ 3, 'reserved' FROM allocation a, device d
           WHERE d.name = 'dcd-0'""",
        id=life.identities(),
    )
    await life.run("UPDATE allocation SET size_bytes = 70 * 1024::bigint ^ 3, granted_bytes = 72 * 1024::bigint ^ 3")
    await agree(api, "two segments")
    assert (await shown(api, "devices", "prod"))["dcd-0"] == (256 - 2) * GiB


async def test_a_tag_covers_what_is_published(api: Api) -> None:
    consumer = {"kind": "Pod", "cluster": "prod"}
    await api.bound("a", device="mld-0", consumer=consumer)
    before = await api.http.get("/v1/devices/mld-0", params={"cluster": "prod"})
    assert "publishable_bytes" not in (await api.http.get("/v1/devices/mld-0")).json()
    await api.http.post(
        "/v1/allocations/a/node-state",
        json={
            "boot_id": "b",
            "segments": [
                {"id": s["id"], "phase": "online"} for s in (await api.http.get("/v1/allocations/a")).json()["segments"]
            ],
        },
    )
    await api.http.delete("/v1/allocations/a")  # blocked: the device's own counters stay as they are
    headers = {"If-None-Match": before.headers["etag"]}
    after = await api.http.get("/v1/devices/mld-0", params={"cluster": "prod"}, headers=headers)
    assert after.status_code == 200
    assert before.json()["publishable_bytes"] - after.json()["publishable_bytes"] == 64 * GiB
