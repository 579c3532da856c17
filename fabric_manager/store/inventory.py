"""The parts of a fabric, as nouns to read. Filters and single objects go by name or id."""

# ruff: noqa: S608 (conditions are put together from constants of ours; values are parameters)

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from fabric_manager.domain.inventory import (
    Attachment,
    Device,
    DeviceBytes,
    Extent,
    Fabric,
    Host,
    HostPort,
    LogicalDevice,
    Pool,
)
from fabric_manager.store.nouns import Noun, Sort, called, one_of
from fabric_manager.store.tables import LIVE

T = TypeVar("T")
Row = Mapping[Any, Any]


def filled(kind: type[T], row: Row, **differing: Any) -> T:
    """A `kind` whose fields are the row's columns of the same name, except for `differing`."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: differing[name] if name in differing else row[name] for name in names})


def device_bytes(row: Row) -> DeviceBytes:
    return filled(DeviceBytes, row)


def read_device(row: Row) -> Device:
    return filled(
        Device,
        row,
        port=row["port_number"],
        bytes=device_bytes(row),
        fixed_sizes=tuple(row["fixed_sizes"]),
        capabilities=tuple(row["capabilities"]),
        reserved_for=tuple(row["reserved_for"]),
        publishable_bytes=row.get("publishable_bytes"),
    )


def read_pool(row: Row) -> Pool:
    return filled(
        Pool,
        row,
        bytes=device_bytes(row),
        fixed_sizes=tuple(row["fixed_sizes"]),
        publishable_bytes=row.get("publishable_bytes"),
    )


def read_host(row: Row) -> Host:
    ports = tuple(HostPort(**port) for port in row["ports"])
    return filled(Host, row, ports=ports, fenced=row["fenced_at"] is not None)


def read_attachment(row: Row) -> Attachment:
    return filled(Attachment, row, port=row["port_number"], vcs=row["vcs_number"], vppb=row["vppb_number"])


# A key stands for the one allocation that is not forgotten.
OF_ALLOCATION = "x.allocation_id = (SELECT id FROM allocation WHERE key = :allocation AND NOT forgotten)"

FABRIC = Noun[Fabric](
    select="SELECT f.* FROM fabric f",
    kinds=frozenset({"fabric"}),
    sorts={"name": Sort[Fabric](columns=[("f.name", "text")], place=lambda fabric: (fabric.name,))},
    sort="name",
    one="f.id = " + called("fabric", "ref"),
    filters={
        "state": one_of("f.state", ["up", "degraded", "unreachable"]),
        "admin_state": one_of("f.admin_state", ["active", "paused", "maintenance"]),
    },
    read=lambda row: filled(Fabric, row),
)

DEVICE = Noun[Device](
    select="""SELECT d.*, f.name AS fabric, w.name AS switch, p.name AS pool,
                     (SELECT coalesce(array_agg(DISTINCT l.size_bytes), '{}') FROM logical_device l
                      WHERE l.device_no = d.number AND l.size_bytes > 0) AS fixed_sizes
              FROM device d JOIN fabric f ON f.id = d.fabric_id AND d.admin_state <> 'retired'
              LEFT JOIN switch w ON w.id = d.switch_id LEFT JOIN pool p ON p.id = d.pool_id""",
    kinds=frozenset({"device", "allocation", "pool", "fabric", "switch"}),
    sorts={
        "name": Sort[Device](columns=[("d.name", "text")], place=lambda device: (device.name,)),
        "number": Sort[Device](columns=[("d.number", "integer")], place=lambda device: (str(device.number),)),
    },
    sort="name",
    one="d.id = " + called("device", "ref"),
    filters={
        "fabric": "d.fabric_id = " + called("fabric", "fabric"),
        "pool": "d.pool_id = " + called("pool", "pool"),
        "kind": one_of("d.kind", ["sld", "mld", "dcd"]),
        "health": one_of("d.health", ["ok", "degraded", "failed", "unknown"]),
        "admin_state": one_of("d.admin_state", ["enabled", "cordoned", "draining", "maintenance"]),
        "name": "d.name = :name",
    },
    read=read_device,
)
PUBLISHED_DEVICE = replace(
    DEVICE,
    select=DEVICE.select.replace("SELECT d.*", "SELECT d.*, publishable_bytes(d, :cluster) AS publishable_bytes", 1),
    shows=frozenset({"cluster"}),
)

LOGICAL_DEVICE = Noun[LogicalDevice](
    select="""SELECT l.*, d.name AS device, a.key AS allocation
              FROM logical_device l JOIN device d ON d.number = l.device_no AND d.admin_state <> 'retired'
              LEFT JOIN segment s ON s.device_no = l.device_no AND s.ld_id = l.ld_id
                AND s.phase NOT IN ('failed', 'released')
              LEFT JOIN allocation a ON a.id = s.allocation_id""",
    kinds=frozenset({"device", "allocation"}),
    sorts={
        "device": Sort[LogicalDevice](
            columns=[("d.name", "text"), ("l.ld_id", "smallint")], place=lambda ld: (ld.device, str(ld.ld_id))
        )
    },
    sort="device",
    one="l.id = CAST(:ref_id AS uuid)",
    filters={
        "device": "d.id = " + called("device", "device"),
        "allocation": f"(l.device_no, l.ld_id) IN (SELECT x.device_no, x.ld_id FROM segment x WHERE {OF_ALLOCATION})",
    },
    read=lambda row: filled(LogicalDevice, row),
)

# An extent is known by its tag and its number within it; the id is made of both.
EXTENT = Noun[Extent](
    select="""SELECT md5(e.segment_id::text || e.number)::uuid AS id, e.number, d.name AS device, e.dpa_space,
                     lower(e.span) AS start_bytes, upper(e.span) - lower(e.span) AS size_bytes,
                     e.segment_id AS tag, a.key AS allocation, h.name AS host
              FROM extent e JOIN device d ON d.number = e.device_no JOIN segment s ON s.id = e.segment_id
              JOIN allocation a ON a.id = s.allocation_id
              JOIN attachment t ON t.id = s.attachment_id JOIN host h ON h.id = t.host_id""",
    kinds=frozenset({"allocation", "device", "host"}),
    sorts={
        "created_at": Sort[Extent](
            columns=[("e.segment_id", "uuid"), ("e.number", "smallint")],
            place=lambda extent: (str(extent.tag), str(extent.number)),
        )
    },
    sort="created_at",
    one="md5(e.segment_id::text || e.number)::uuid::text = :ref",
    filters={
        "device": "e.device_no = (SELECT number FROM device WHERE name = :device OR id = CAST(:device_id AS uuid))",
        "host": f"""e.segment_id IN (
                      SELECT x.id FROM attachment y JOIN segment x ON x.attachment_id = y.id AND x.{LIVE}
                      WHERE y.live AND y.host_id = {called("host", "host")})""",
        "allocation": f"e.segment_id IN (SELECT x.id FROM segment x WHERE {OF_ALLOCATION})",
    },
    read=lambda row: filled(Extent, row),
)

ATTACHMENT = Noun[Attachment](
    select="""SELECT t.*, h.name AS host, d.name AS device, w.name AS switch
              FROM attachment t JOIN host h ON h.id = t.host_id JOIN device d ON d.number = t.device_no
              JOIN switch w ON w.id = t.switch_id AND t.live""",
    kinds=frozenset({"allocation", "device", "host", "switch"}),
    sorts={"created_at": Sort[Attachment](columns=[("t.id", "uuid")], place=lambda attachment: (str(attachment.id),))},
    sort="created_at",
    one="t.id = CAST(:ref_id AS uuid)",
    filters={
        "device": "t.device_no = (SELECT number FROM device WHERE name = :device OR id = CAST(:device_id AS uuid))",
        "host": "t.host_id = " + called("host", "host"),
        "kind": one_of("t.kind", ["sld", "mld", "dcd"]),
    },
    read=read_attachment,
)

HOST = Noun[Host](
    select="""SELECT h.*, (SELECT coalesce(jsonb_agg(jsonb_build_object('switch', p.switch_name, 'port', p.port_number)
                                   ORDER BY p.switch_name, p.port_number), '[]')
                           FROM host_port p WHERE p.host_id = h.id) AS ports
              FROM host h""",
    kinds=frozenset({"host"}),
    sorts={"name": Sort[Host](columns=[("h.name", "text")], place=lambda host: (host.name,))},
    sort="name",
    one="h.id = " + called("host", "ref"),
    filters={"cluster": "h.cluster = :cluster"},
    read=read_host,
)

# What one grant could take today is a whole free LD, or what a dynamic-capacity device has left. A pool's generation
# counts its devices' changes too, because it shows their bytes.
POOL = Noun[Pool](
    select="""SELECT p.id, p.name, p.kind, p.tier, p.labels, p.created_at, b.*,
                     p.generation + b.generations AS generation, greatest(p.updated_at, b.changed_at) AS updated_at
              FROM pool p, LATERAL (
                SELECT count(*) AS devices, coalesce(sum(d.capacity_bytes), 0)::bigint AS capacity_bytes,
                       coalesce(sum(d.free_bytes), 0)::bigint AS free_bytes,
                       coalesce(sum(d.allocated_bytes), 0)::bigint AS allocated_bytes,
                       coalesce(sum(d.sanitizing_bytes), 0)::bigint AS sanitizing_bytes,
                       coalesce(sum(d.quarantined_bytes), 0)::bigint AS quarantined_bytes,
                       coalesce(sum(d.withdrawn_bytes), 0)::bigint AS withdrawn_bytes,
                       max(d.allocation_step_bytes) FILTER (WHERE d.kind = 'dcd') AS allocation_step_bytes,
                       coalesce(max(CASE WHEN d.health <> 'ok' OR d.admin_state <> 'enabled' THEN 0
                                         WHEN d.kind = 'mld' THEN f.largest
                                         ELSE d.free_bytes END), 0) AS largest_fit_bytes,
                       coalesce(sum(d.generation), 0)::bigint AS generations, max(d.updated_at) AS changed_at,
                       (SELECT coalesce(array_agg(DISTINCT x.size_bytes), '{}') FROM logical_device x
                        JOIN device y ON y.number = x.device_no
                        WHERE y.pool_id = p.id AND x.size_bytes > 0) AS fixed_sizes
                FROM device d, LATERAL (
                  SELECT max(x.size_bytes) AS largest FROM logical_device x
                  WHERE x.device_no = d.number AND d.free_lds & (1 << x.ld_id) <> 0) f
                WHERE d.pool_id = p.id) b""",
    kinds=frozenset({"pool", "device", "allocation"}),
    sorts={"name": Sort[Pool](columns=[("p.name", "text")], place=lambda pool: (pool.name,))},
    sort="name",
    one="p.id = " + called("pool", "ref"),
    filters={"kind": one_of("p.kind", ["sld", "mld", "dcd"])},
    read=read_pool,
)
PUBLISHED_POOL = replace(
    POOL,
    select=POOL.select.replace(
        "SELECT count(*) AS devices",
        "SELECT coalesce(sum(publishable_bytes(d, :cluster)), 0)::bigint AS publishable_bytes, count(*) AS devices",
        1,
    ),
    shows=frozenset({"cluster"}),
)
