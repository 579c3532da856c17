"""The graph of the fabrics, read part by part in one snapshot."""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.glance import (
    DeviceNode,
    Edge,
    FabricNode,
    HostNode,
    PortNode,
    SwitchNode,
    Topology,
    VcsNode,
)
from fabric_manager.store.inventory import filled
from fabric_manager.store.switches import VCS, read_vppbs

PARTS_MAX = 20_000  # of each kind
KINDS = VCS.kinds | {"pool"}
Rows = Sequence[Any]

PARTS = {
    "fabrics": "SELECT * FROM fabric ORDER BY name",
    "switches": "SELECT * FROM switch ORDER BY name",
    "ports": """SELECT p.*, w.name AS switch, d.id AS device_id, hp.host_id
                FROM port p JOIN switch w ON w.id = p.switch_id
                LEFT JOIN device d ON d.serial = p.device_serial AND d.admin_state <> 'retired'
                LEFT JOIN host_port hp ON hp.switch_name = w.name AND hp.port_number = p.number
                ORDER BY w.name, p.number""",
    "vcs": VCS.select.replace("SELECT v.*", "SELECT v.*, p.id AS port_id", 1)
    + " LEFT JOIN port p ON p.switch_id = v.switch_id AND p.number = v.upstream_port ORDER BY w.name, v.number",
    "devices": """SELECT d.*, p.name AS pool FROM device d LEFT JOIN pool p ON p.id = d.pool_id
                  WHERE d.admin_state <> 'retired' ORDER BY d.name""",
    "hosts": "SELECT * FROM host ORDER BY name",
    "attachments": """SELECT t.id, t.host_id, d.id AS device_id, v.id AS vcs_id, t.vppb_number, t.ld_id, t.state
                      FROM attachment t JOIN device d ON d.number = t.device_no
                      JOIN vcs v ON v.switch_id = t.switch_id AND v.number = t.vcs_number
                      WHERE t.live ORDER BY t.id""",
}


def edges(parts: dict[str, Rows]) -> Iterator[Edge]:
    for switch in parts["switches"]:
        if switch["fabric_id"] is not None:
            yield Edge(kind="has_switch", source=switch["fabric_id"], target=switch["id"])
    for port in parts["ports"]:
        yield Edge(kind="has_port", source=port["switch_id"], target=port["id"])
        for neighbor in (port["device_id"], port["host_id"]):
            if neighbor is not None:
                yield Edge(kind="plugged", source=port["id"], target=neighbor)
    for vcs in parts["vcs"]:
        yield Edge(kind="has_vcs", source=vcs["switch_id"], target=vcs["id"])
        if vcs["port_id"] is not None:
            yield Edge(kind="upstream", source=vcs["id"], target=vcs["port_id"])
    for attachment in parts["attachments"]:
        yield Edge(
            kind="attached",
            source=attachment["host_id"],
            target=attachment["device_id"],
            attachment=attachment["id"],
            vcs=attachment["vcs_id"],
            vppb=attachment["vppb_number"],
            ld_id=attachment["ld_id"],
            state=attachment["state"],
        )


async def read(tx: AsyncConnection) -> Topology:
    parts: dict[str, Rows] = {}
    truncated = []
    for name, query in PARTS.items():
        rows = (await tx.execute(sa.text(f"{query} LIMIT :limit"), {"limit": PARTS_MAX + 1})).mappings().all()
        if len(rows) > PARTS_MAX:
            truncated.append(name)
        parts[name] = rows[:PARTS_MAX]
    return Topology(
        fabrics=tuple(filled(FabricNode, row) for row in parts["fabrics"]),
        switches=tuple(filled(SwitchNode, row) for row in parts["switches"]),
        ports=tuple(filled(PortNode, row) for row in parts["ports"]),
        vcs=tuple(filled(VcsNode, row, vppbs=read_vppbs(row)) for row in parts["vcs"]),
        devices=tuple(filled(DeviceNode, row) for row in parts["devices"]),
        hosts=tuple(filled(HostNode, row) for row in parts["hosts"]),
        edges=tuple(edges(parts)),
        truncated=tuple(truncated),
    )
