"""The parts of the fabric, listed and one by one; every answer as its model says."""

import pytest
from pydantic import BaseModel

from fabric_manager.api import views
from fabric_manager.domain.units import GiB
from tests.api.conftest import Api

LISTS: dict[str, type[BaseModel]] = {
    "allocations": views.AllocationPage,
    "pools": views.PoolPage,
    "devices": views.DevicePage,
    "logical-devices": views.LogicalDevicePage,
    "extents": views.ExtentPage,
    "attachments": views.AttachmentPage,
    "hosts": views.HostPage,
    "fabrics": views.FabricPage,
    "operations": views.OperationPage,
}


@pytest.fixture
async def busy(api: Api) -> Api:
    """Something of every noun: an LD bound to node-0, extents for node-1, work under way."""
    await api.bound("on-ld", device="mld-0", consumer={"kind": "ResourceClaim", "uid": "u", "cluster": "prod"})
    await api.put("on-dcd", device="dcd-0", host="node-1", size_bytes=1 * GiB)
    return api


async def test_every_list_and_every_object_is_as_its_model_says(busy: Api) -> None:
    for noun, model in LISTS.items():
        listed = await busy.http.get(f"/v1/{noun}")
        assert listed.status_code == 200, listed.text
        model.model_validate_json(listed.content)
        body = listed.json()
        assert body["items"], noun
        for item in body["items"]:
            one = await busy.http.get(f"/v1/{noun}/{item['key'] if noun == 'allocations' else item['id']}")
            assert one.json() == item
            unchanged = await busy.http.get(str(one.url), headers={"If-None-Match": one.headers["etag"]})
            assert (unchanged.status_code, unchanged.content) == (304, b""), noun


async def test_other_answers_are_as_their_models_say(busy: Api) -> None:
    models: dict[str, type[BaseModel]] = {
        "events": views.EventPage,
        "allocations/on-ld/timeline": views.TimelineView,
        "invariants": views.InvariantsView,
        "version": views.VersionView,
    }
    for path, model in models.items():
        response = await busy.http.get(f"/v1/{path}")
        assert response.status_code == 200, response.text
        model.model_validate_json(response.content)
    views.LiveView.model_validate_json((await busy.http.get("/healthz")).content)
    views.ReadyView.model_validate_json((await busy.http.get("/readyz")).content)
    views.Problem.model_validate_json((await busy.http.get("/v1/pools/nothing")).content)


async def test_objects_go_by_name_too(busy: Api) -> None:
    for path in ("pools/mlds", "devices/mld-0", "hosts/node-0", "fabrics/rack-0"):
        assert (await busy.http.get(f"/v1/{path}")).status_code == 200


async def test_lists_are_paged_without_missing_or_doubling(busy: Api) -> None:
    for noun in LISTS:
        whole = (await busy.http.get(f"/v1/{noun}")).json()["items"]
        pages, cursor = [], None
        while True:
            params = {"limit": 1} | ({"cursor": cursor} if cursor else {})
            page = (await busy.http.get(f"/v1/{noun}", params=params)).json()
            pages += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert pages == whole, noun


async def test_filters_restrict(busy: Api) -> None:
    async def items(path: str) -> list[dict[str, object]]:
        return list((await busy.http.get(f"/v1/{path}")).json()["items"])

    assert [d["name"] for d in await items("devices?pool=mlds&kind=mld&fabric=rack-0")] == ["mld-0"]
    assert await items("devices?pool=none") == []
    assert len(await items("logical-devices?device=mld-0")) == 4
    assert [ld["ld_id"] for ld in await items("logical-devices?allocation=on-ld")] == [0]
    assert [e["host"] for e in await items("extents?allocation=on-dcd")] == ["node-1"]
    assert await items("extents?host=node-0") == []
    assert [a["state"] for a in await items("attachments?host=node-0")] == ["bound"]
    assert [o["allocation"] for o in await items("operations?state=pending&goal=bind")] == ["on-dcd"]
    assert await items("hosts?cluster=other") == []
    assert [p["name"] for p in await items("pools?kind=dcd")] == ["dcds"]


async def test_a_pool_sums_its_devices(busy: Api) -> None:
    mlds = (await busy.http.get("/v1/pools/mlds")).json()
    assert (mlds["capacity_bytes"], mlds["free_bytes"], mlds["allocated_bytes"]) == (256 * GiB, 192 * GiB, 64 * GiB)
    assert (mlds["largest_fit_bytes"], mlds["fixed_sizes"], mlds["devices"]) == (64 * GiB, [64 * GiB], 1)
    dcds = (await busy.http.get("/v1/pools/dcds")).json()
    assert dcds["largest_fit_bytes"] == 255 * GiB


async def test_an_operation_is_waited_for(busy: Api) -> None:
    operation = (await busy.http.get("/v1/allocations/on-dcd")).json()["operation"]["id"]
    still = (await busy.http.get(f"/v1/operations/{operation}", params={"wait": 1})).json()
    assert still["state"] == "pending"
    await busy.settle("on-dcd", "binding", "bind-read-back")
    done = (await busy.http.get(f"/v1/operations/{operation}", params={"wait": 10})).json()
    assert done["state"] == "done"


async def test_the_timeline_tells_a_whole_life(busy: Api) -> None:
    await busy.http.delete("/v1/allocations/on-ld")
    await busy.erased("on-ld")
    story = (await busy.http.get("/v1/allocations/on-ld/timeline")).json()
    titles = [entry["title"] for entry in story["entries"]]
    phases = ["reserved", "binding", "bound", "releasing", "sanitizing", "released"]
    assert [title for title in titles if title.startswith("allocation.")] == [f"allocation.{p}" for p in phases]
    assert "completion" in titles
    assert story["truncated"] is False
