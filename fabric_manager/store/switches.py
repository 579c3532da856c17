"""Switches and their parts, and the bindings that run through them, as nouns to read."""

# ruff: noqa: S608 (conditions are put together from constants of ours; values are parameters)

from fabric_manager.domain.lifecycle import TERMINAL, Phase
from fabric_manager.domain.switches import Port, SegmentBinding, Switch, Vcs, Vppb
from fabric_manager.store.inventory import OF_ALLOCATION, Row, filled
from fabric_manager.store.nouns import Noun, Sort, called, id_or_none, one_of

LIVE_PHASES = [phase for phase in Phase if phase not in TERMINAL]
HARDWARE = frozenset({"switch", "fabric", "host", "device"})


def read_vppbs(row: Row) -> tuple[Vppb, ...]:
    return tuple(Vppb(**{**v, "attachment": v["attachment"] and id_or_none(v["attachment"])}) for v in row["vppbs"])


SWITCH = Noun[Switch](
    select="""SELECT w.*, f.name AS fabric, (SELECT count(*) FROM port p WHERE p.switch_id = w.id) AS ports,
                     (SELECT count(*) FROM vcs v WHERE v.switch_id = w.id) AS vcs
              FROM switch w LEFT JOIN fabric f ON f.id = w.fabric_id""",
    kinds=HARDWARE,
    sorts={"name": Sort[Switch](columns=[("w.name", "text")], place=lambda switch: (switch.name,))},
    sort="name",
    one="w.id = " + called("switch", "ref"),
    filters={"fabric": "w.fabric_id = " + called("fabric", "fabric")},
    read=lambda row: filled(Switch, row),
)

# A port and a VCS have no name; `switch:number` says which one is meant.
PORT = Noun[Port](
    select="""SELECT p.*, w.name AS switch, d.name AS device, h.name AS host
              FROM port p JOIN switch w ON w.id = p.switch_id LEFT JOIN device d ON d.serial = p.device_serial
              LEFT JOIN host_port hp ON hp.switch_name = w.name AND hp.port_number = p.number
              LEFT JOIN host h ON h.id = hp.host_id""",
    kinds=HARDWARE,
    sorts={
        "switch": Sort[Port](
            columns=[("w.name", "text"), ("p.number", "smallint")], place=lambda port: (port.switch, str(port.number))
        )
    },
    sort="switch",
    one="(p.id = CAST(:ref_id AS uuid) OR w.name || ':' || p.number = :ref)",
    filters={
        "switch": "p.switch_id = " + called("switch", "switch"),
        "role": one_of("p.role", ["upstream", "downstream", "fabric", "disabled"]),
    },
    read=lambda row: filled(Port, row),
)

VCS = Noun[Vcs](
    select="""SELECT v.*, w.name AS switch, h.name AS host, (
                SELECT coalesce(jsonb_agg(jsonb_build_object(
                  'number', b.number, 'state', b.state, 'port', b.port_number, 'ld_id', b.ld_id, 'attachment', t.id)
                  ORDER BY b.number), '[]')
                FROM vppb b LEFT JOIN attachment t ON t.live AND t.switch_id = b.switch_id
                  AND t.vcs_number = b.vcs_number AND t.vppb_number = b.number
                WHERE b.switch_id = v.switch_id AND b.vcs_number = v.number) AS vppbs
              FROM vcs v JOIN switch w ON w.id = v.switch_id
              LEFT JOIN host_port hp ON hp.switch_name = w.name AND hp.port_number = v.upstream_port
              LEFT JOIN host h ON h.id = hp.host_id""",
    kinds=HARDWARE | {"allocation"},
    sorts={
        "switch": Sort[Vcs](
            columns=[("w.name", "text"), ("v.number", "smallint")], place=lambda vcs: (vcs.switch, str(vcs.number))
        )
    },
    sort="switch",
    one="(v.id = CAST(:ref_id AS uuid) OR w.name || ':' || v.number = :ref)",
    filters={
        "switch": "v.switch_id = " + called("switch", "switch"),
        "host": "hp.host_id = " + called("host", "host"),
    },
    read=lambda row: filled(Vcs, row, vppbs=read_vppbs(row)),
)

# coalesce hides from the planner how few of all attachments are live: of those of live segments nearly all are.
BINDING = Noun[SegmentBinding](
    select="""SELECT s.id, a.key AS allocation, n.name AS tenant, h.name AS host, d.name AS device, s.ld_id,
                     s.size_bytes, t.id AS attachment, w.name AS switch, t.port_number AS port, t.vcs_number AS vcs,
                     t.vppb_number AS vppb, s.phase, s.node_state, s.verified_at, t.created_at
              FROM segment s JOIN attachment t ON t.id = s.attachment_id AND coalesce(t.live, false)
                AND s.phase NOT IN ('failed', 'released')
              JOIN allocation a ON a.id = s.allocation_id JOIN tenant n ON n.id = a.tenant_id
              JOIN host h ON h.id = t.host_id JOIN device d ON d.number = s.device_no
              JOIN switch w ON w.id = t.switch_id""",
    kinds=frozenset({"allocation", "host", "device", "switch"}),
    sorts={"created_at": Sort[SegmentBinding](columns=[("s.id", "uuid")], place=lambda bound: (str(bound.id),))},
    sort="created_at",
    one="s.id = CAST(:ref_id AS uuid)",
    filters={
        "allocation": f"s.id IN (SELECT x.id FROM segment x WHERE {OF_ALLOCATION})",
        "host": f"s.attachment_id IN (SELECT id FROM attachment WHERE live AND host_id = {called('host', 'host')})",
        "device": "s.device_no = (SELECT number FROM device WHERE name = :device OR id = CAST(:device_id AS uuid))",
        "switch": "t.switch_id = " + called("switch", "switch"),
        "phase": one_of("s.phase", LIVE_PHASES),
    },
    bounds={
        "sees_tenant": "a.tenant_id = (SELECT id FROM tenant WHERE name = :sees_tenant)",
        "sees_cluster": "a.cluster = :sees_cluster",
        "sees_host": "a.host_id = (SELECT id FROM host WHERE name = :sees_host)",
    },
    read=lambda row: filled(SegmentBinding, row, phase=Phase(row["phase"])),
)
