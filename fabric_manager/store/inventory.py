"""The parts of a fabric, as nouns to read. Filters and single objects go by name or id."""

from collections.abc import Mapping
from dataclasses import fields
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
from fabric_manager.store.nouns import Noun

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
    )


def read_pool(row: Row) -> Pool:
    return filled(Pool, row, bytes=device_bytes(row), fixed_sizes=tuple(row["fixed_sizes"]))


def read_host(row: Row) -> Host:
    ports = tuple(HostPort(**port) for port in row["ports"])
    return filled(Host, row, ports=ports, fenced=row["fenced_at"] is not None)


def read_attachment(row: Row) -> Attachment:
    return filled(Attachment, row, port=row["port_number"], vcs=row["vcs_number"], vppb=row["vppb_number"])


FABRIC = Noun[Fabric](
    select="SELECT f.* FROM fabric f",
    order=[("f.name", "text")],
    one=":ref IN (f.name, f.id::text)",
    filters={},
    read=lambda row: filled(Fabric, row),
    place=lambda fabric: (fabric.name,),
)

DEVICE = Noun[Device](
    select="""SELECT d.*, f.name AS fabric, w.name AS switch, p.name AS pool,
                     (SELECT coalesce(array_agg(DISTINCT l.size_bytes), '{}') FROM logical_device l
                      WHERE l.device_no = d.number AND l.size_bytes > 0) AS fixed_sizes
              FROM device d JOIN fabric f ON f.id = d.fabric_id
              LEFT JOIN switch w ON w.id = d.switch_id LEFT JOIN pool p ON p.id = d.pool_id""",
    order=[("d.name", "text")],
    one=":ref IN (d.name, d.id::text)",
    filters={
        "fabric": ":fabric IN (f.name, f.id::text)",
        "pool": ":pool IN (p.name, p.id::text)",
        "kind": "d.kind = :kind",
    },
    read=read_device,
    place=lambda device: (device.name,),
)

LOGICAL_DEVICE = Noun[LogicalDevice](
    select="""SELECT l.*, d.name AS device, a.key AS allocation
              FROM logical_device l JOIN device d ON d.number = l.device_no
              LEFT JOIN segment s ON s.device_no = l.device_no AND s.ld_id = l.ld_id
                AND s.phase NOT IN ('failed', 'released')
              LEFT JOIN allocation a ON a.id = s.allocation_id""",
    order=[("d.name", "text"), ("l.ld_id", "smallint")],
    one="l.id::text = :ref",
    filters={"device": ":device IN (d.name, d.id::text)", "allocation": "a.key = :allocation"},
    read=lambda row: filled(LogicalDevice, row),
    place=lambda ld: (ld.device, str(ld.ld_id)),
)

# An extent is known by its tag and its number within it; the id is made of both.
EXTENT = Noun[Extent](
    select="""SELECT md5(e.segment_id::text || e.number)::uuid AS id, d.name AS device, e.dpa_space,
                     lower(e.span) AS start_bytes, upper(e.span) - lower(e.span) AS size_bytes,
                     e.segment_id AS tag, a.key AS allocation, h.name AS host
              FROM extent e JOIN device d ON d.number = e.device_no JOIN segment s ON s.id = e.segment_id
              JOIN allocation a ON a.id = s.allocation_id
              JOIN attachment t ON t.id = s.attachment_id JOIN host h ON h.id = t.host_id""",
    order=[("d.name", "text"), ("e.dpa_space", "smallint"), ("lower(e.span)", "bigint")],
    one="md5(e.segment_id::text || e.number)::uuid::text = :ref",
    filters={
        "device": ":device IN (d.name, d.id::text)",
        "host": ":host IN (h.name, h.id::text)",
        "allocation": "a.key = :allocation",
    },
    read=lambda row: filled(Extent, row),
    place=lambda extent: (extent.device, str(extent.dpa_space), str(extent.start_bytes)),
)

ATTACHMENT = Noun[Attachment](
    select="""SELECT t.*, h.name AS host, d.name AS device, w.name AS switch
              FROM attachment t JOIN host h ON h.id = t.host_id JOIN device d ON d.number = t.device_no
              JOIN switch w ON w.id = t.switch_id AND t.live""",
    order=[("h.name", "text"), ("d.name", "text"), ("t.id", "uuid")],
    one="t.id::text = :ref",
    filters={
        "device": ":device IN (d.name, d.id::text)",
        "host": ":host IN (h.name, h.id::text)",
        "kind": "t.kind = :kind",
    },
    read=read_attachment,
    place=lambda attachment: (attachment.host, attachment.device, str(attachment.id)),
)

HOST = Noun[Host](
    select="""SELECT h.*, (SELECT coalesce(jsonb_agg(jsonb_build_object('switch', p.switch_name, 'port', p.port_number)
                                   ORDER BY p.switch_name, p.port_number), '[]')
                           FROM host_port p WHERE p.host_id = h.id) AS ports
              FROM host h""",
    order=[("h.name", "text")],
    one=":ref IN (h.name, h.id::text)",
    filters={"cluster": "h.cluster = :cluster"},
    read=read_host,
    place=lambda host: (host.name,),
)

# What one grant could take today is a whole free LD, or what a dynamic-capacity device has left. A pool's generation
# counts its devices' changes too, because it shows their bytes.
POOL = Noun[Pool](
    select="""SELECT p.id, p.name, p.kind, p.tier, p.created_at, b.*, p.generation + b.generations AS generation,
                     greatest(p.updated_at, b.changed_at) AS updated_at
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
    order=[("p.name", "text")],
    one=":ref IN (p.name, p.id::text)",
    filters={"kind": "p.kind = :kind"},
    read=read_pool,
    place=lambda pool: (pool.name,),
)
