"""A fabric in the database without hardware: what a scan would have discovered. For tests that need no reconciler."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from fabric_manager.allocator.inventory import declare
from fabric_manager.domain.actor import Actor
from fabric_manager.domain.units import GiB, MiB
from fabric_manager.store import work
from fabric_manager.store.database import Database
from fabric_manager.store.work import Owned

ACTOR = Actor(name="test")


async def a_fabric(
    db: Database,
    identities: Callable[[], UUID],
    *,
    mlds: int = 1,
    lds: int = 4,
    ld_bytes: int = 64 * GiB,
    dcds: int = 0,
    dcd_bytes: int = 256 * GiB,
    hosts: int = 2,
    vppbs: int = 4,
) -> Owned:
    """One switch, `hosts` with a VCS of `vppbs`, pools `mlds` and `dcds`. Answers the ownership that discovered it."""
    names = [f"mld-{n}" for n in range(mlds)] + [f"dcd-{n}" for n in range(dcds)]
    inventory: Mapping[str, list[dict[str, Any]]] = {
        "fabrics": [{"name": "rack-0", "driver": "simulator", "endpoint": "simulator:none"}],
        "pools": [{"name": "mlds", "kind": "mld", "tier": "high"}, {"name": "dcds", "kind": "dcd", "tier": "standard"}],
        "devices": [
            {"name": name, "serial": f"serial-{name}", "fabric": "rack-0", "pool": f"{name[:3]}s", "latency_ns": 200}
            for name in names
        ],
        "hosts": [{"name": f"node-{n}", "ports": [{"switch": "sw-0", "port": n}]} for n in range(hosts)],
    }
    await declare(db, inventory, actor=ACTOR, identities=identities)
    fabric = (await work.fabrics(db))[0]
    owned = await work.acquire(db, fabric.id, owner="test/1", ttl_s=600, command_s=2)
    assert owned is not None
    await discover(
        db, owned, identities, names=names, hosts=hosts, vppbs=vppbs, lds=lds, ld_bytes=ld_bytes, dcd_bytes=dcd_bytes
    )
    return owned


async def discover(
    db: Database,
    owned: Owned,
    identities: Callable[[], UUID],
    *,
    names: list[str],
    hosts: int,
    vppbs: int,
    lds: int,
    ld_bytes: int,
    dcd_bytes: int,
) -> None:
    switch = {
        "name": "sw-0",
        "serial": "serial-sw-0",
        "hdm_decoders": 8,
        "boot_count": 1,
        "ports": [{"number": n, "role": "upstream"} | LINK for n in range(hosts)]
        + [
            {"number": 64 + n, "role": "downstream", "device_serial": f"serial-{name}"} | LINK
            for n, name in enumerate(names)
        ],
        "vcs": [
            {"number": n, "upstream_port": n, "vppbs": [{"number": v, "state": "free"} for v in range(vppbs)]}
            for n in range(hosts)
        ],
    }
    ids = [identities() for _ in range(hosts * 2 + len(names))]
    await work.discover_switch(db, owned, switch=switch, new_id=identities(), ids=ids, actor=ACTOR)
    for n, name in enumerate(names):
        facts = mld_facts(lds, ld_bytes) if name.startswith("mld") else dcd_facts(dcd_bytes, hosts)
        device = {"serial": f"serial-{name}", "switch": "sw-0", "port": 64 + n, "health": "ok", "firmware": "1"} | facts
        fresh = [identities() for _ in range(lds)]
        await work.discover_device(db, owned, device=device, new_id=identities(), ids=fresh, actor=ACTOR)


LINK = {"link_width": 16, "link_width_max": 16, "link_speed_gt": 32, "link_speed_gt_max": 32}


def mld_facts(lds: int, ld_bytes: int) -> dict[str, Any]:
    return {
        "kind": "mld",
        "capacity_bytes": lds * ld_bytes,
        "granule_bytes": 256 * MiB,
        "lds_max": 16,
        "lds": [{"ld_id": n, "size_bytes": ld_bytes, "share_n": 0, "limit_n": 0} for n in range(lds)],
        "dc_regions": [],
        "capabilities": ["sanitize_ld"],
    }


def dcd_facts(capacity_bytes: int, hosts: int) -> dict[str, Any]:
    region = {
        "number": 0,
        "base_bytes": 0,
        "size_bytes": capacity_bytes,
        "block_bytes": 2 * MiB,
        "sanitize_on_release": True,
    }
    return {
        "kind": "dcd",
        "capacity_bytes": capacity_bytes,
        "granule_bytes": 2 * MiB,
        "lds_max": hosts,
        "lds": [],
        "dc_regions": [region],
        "capabilities": ["dc_prescriptive", "sanitize_on_release"],
    }
