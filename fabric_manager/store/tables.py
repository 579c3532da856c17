"""The schema, with what must never happen as named constraints. Triggers and functions are in sql/."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from fabric_manager.domain.actor import Role
from fabric_manager.domain.lifecycle import TERMINAL, Goal, Phase
from fabric_manager.domain.operation import UNFINISHED, OperationState

metadata = sa.MetaData()

ADDRESS_MAX = 1 << 62  # beyond it, inclusive range bounds overflow
SHARES_PER_DEVICE = 256  # QoS shares are fractions of 256 on the wire


def quoted(words: Any) -> str:
    return ", ".join(f"'{word}'" for word in words)


LIVE = f"phase NOT IN ({quoted(sorted(TERMINAL))})"


def one_of(column: str, words: Any) -> str:
    return f"{column} IN ({quoted(words)})"


def identity() -> sa.Column[Any]:
    return sa.Column("id", sa.Uuid, primary_key=True)


def named() -> sa.Column[Any]:
    return sa.Column("name", sa.Text, nullable=False, unique=True)


def generation() -> sa.Column[Any]:
    return sa.Column("generation", sa.BigInteger, nullable=False, server_default="1")


def instant(name: str, *, nullable: bool = True) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def created() -> sa.Column[Any]:
    return sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def updated() -> sa.Column[Any]:
    return sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def state_changed() -> sa.Column[Any]:
    return sa.Column("state_changed_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def bytes_column(name: str, *, default: str | None = "0") -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=default)


def labels() -> sa.Column[Any]:
    return sa.Column("labels", pg.JSONB, nullable=False, server_default="{}")


def text_array(name: str) -> sa.Column[Any]:
    return sa.Column(name, pg.ARRAY(sa.Text), nullable=False, server_default="{}")


lifecycle_transition = sa.Table(
    "lifecycle_transition",
    metadata,
    sa.Column("phase", sa.Text, primary_key=True),
    sa.Column("event", sa.Text, primary_key=True),
    sa.Column("next_phase", sa.Text, nullable=False),
    comment="A copy of domain/lifecycle.py; a test compares them.",
)

fabric = sa.Table(
    "fabric",
    metadata,
    identity(),
    named(),
    sa.Column("driver", sa.Text, nullable=False),
    sa.Column("endpoint", sa.Text, nullable=False),
    sa.Column("credentials_ref", sa.Text),
    sa.Column("admin_state", sa.Text, nullable=False, server_default="active"),
    sa.Column("state", sa.Text, nullable=False, server_default="unreachable"),
    sa.Column("state_reason", sa.Text),
    sa.Column("owner", sa.Text, comment="process that drives the hardware now"),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    instant("owned_until"),
    instant("scanned_at"),
    state_changed(),
    generation(),
    created(),
    updated(),
    sa.CheckConstraint(one_of("admin_state", ["active", "paused", "maintenance"]), name="fabric_admin_state_known"),
    sa.CheckConstraint(one_of("state", ["up", "degraded", "unreachable"]), name="fabric_state_known"),
    sa.CheckConstraint("epoch >= 0", name="fabric_epoch_not_negative"),
)

pool = sa.Table(
    "pool",
    metadata,
    identity(),
    named(),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("tier", sa.Text),
    labels(),
    generation(),
    created(),
    updated(),
    sa.UniqueConstraint("id", "kind", name="pool_kind_key"),
    sa.CheckConstraint(one_of("kind", ["sld", "mld", "dcd"]), name="pool_kind_known"),
)

switch = sa.Table(
    "switch",
    metadata,
    identity(),
    named(),
    sa.Column("fabric_id", sa.ForeignKey("fabric.id"), comment="NULL: of a fabric that was deleted"),
    sa.Column("serial", sa.Text, nullable=False, unique=True),
    sa.Column("hdm_decoders", sa.Integer, nullable=False),
    sa.Column("boot_count", sa.BigInteger),
    generation(),
    created(),
    updated(),
    sa.Index("switch_fabric", "fabric_id"),
)

port = sa.Table(
    "port",
    metadata,
    identity(),
    sa.Column("switch_id", sa.ForeignKey("switch.id"), nullable=False),
    sa.Column("number", sa.SmallInteger, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("device_serial", sa.Text),
    sa.Column("link_width", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("link_width_max", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("link_speed_gt", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("link_speed_gt_max", sa.SmallInteger, nullable=False, server_default="0"),
    generation(),
    updated(),
    sa.UniqueConstraint("switch_id", "number", name="port_number_key"),
    sa.CheckConstraint(one_of("role", ["upstream", "downstream", "fabric", "disabled"]), name="port_role_known"),
    sa.CheckConstraint("number BETWEEN 0 AND 255", name="port_number_bounded"),
)

vcs = sa.Table(
    "vcs",
    metadata,
    identity(),
    sa.Column("switch_id", sa.ForeignKey("switch.id"), nullable=False),
    sa.Column("number", sa.SmallInteger, nullable=False),
    sa.Column("upstream_port", sa.SmallInteger, nullable=False),
    generation(),
    updated(),
    sa.UniqueConstraint("switch_id", "number", name="vcs_number_key"),
    sa.CheckConstraint("number BETWEEN 0 AND 255", name="vcs_number_bounded"),
)

vppb = sa.Table(
    "vppb",
    metadata,
    sa.Column("switch_id", sa.Uuid, primary_key=True),
    sa.Column("vcs_number", sa.SmallInteger, primary_key=True),
    sa.Column("number", sa.SmallInteger, primary_key=True),
    sa.Column("state", sa.Text, nullable=False, comment="as last read from the switch"),
    sa.Column("port_number", sa.SmallInteger),
    sa.Column("ld_id", sa.SmallInteger),
    updated(),
    sa.ForeignKeyConstraint(["switch_id", "vcs_number"], ["vcs.switch_id", "vcs.number"], name="vppb_of_vcs"),
    sa.CheckConstraint(one_of("state", ["free", "busy", "bound_port", "bound_ld"]), name="vppb_state_known"),
)

device = sa.Table(
    "device",
    metadata,
    identity(),
    sa.Column("number", sa.Integer, sa.Identity(always=True), nullable=False, unique=True),
    named(),
    sa.Column("fabric_id", sa.ForeignKey("fabric.id"), comment="NULL: retired, and its fabric deleted"),
    sa.Column("switch_id", sa.ForeignKey("switch.id")),
    sa.Column("port_number", sa.SmallInteger),
    sa.Column("serial", sa.Text, nullable=False, unique=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("pool_id", sa.Uuid),
    bytes_column("capacity_bytes"),
    bytes_column("free_bytes"),
    bytes_column("allocated_bytes"),
    bytes_column("sanitizing_bytes"),
    bytes_column("quarantined_bytes"),
    bytes_column("withdrawn_bytes"),
    bytes_column("granule_bytes", default="1"),
    bytes_column("allocation_step_bytes", default="1"),
    sa.Column("lds_max", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column(
        "free_lds", sa.Integer, nullable=False, server_default="0", comment="bit n: LD n is carved, clean, unheld"
    ),
    sa.Column("share_n", sa.SmallInteger, nullable=False, server_default="0", comment="sum of live shares, n/256"),
    sa.Column("exclusive_tenant_id", sa.ForeignKey("tenant.id")),
    sa.Column("dc_regions", pg.JSONB, nullable=False, server_default="[]"),
    bytes_column("bandwidth_bytes_per_s"),
    sa.Column("latency_ns", sa.Integer, nullable=False, server_default="0"),
    sa.Column("tier", sa.Text),
    sa.Column("media", sa.Text),
    sa.Column("failure_domain", sa.Text),
    labels(),
    text_array("capabilities"),
    text_array("reserved_for"),
    sa.Column("health", sa.Text, nullable=False, server_default="unknown"),
    sa.Column("firmware", sa.Text, nullable=False, server_default=""),
    sa.Column("admin_state", sa.Text, nullable=False, server_default="enabled"),
    sa.Column("boot_count", sa.BigInteger),
    state_changed(),
    generation(),
    created(),
    updated(),
    sa.ForeignKeyConstraint(["pool_id", "kind"], ["pool.id", "pool.kind"], name="device_pool_of_its_kind"),
    sa.CheckConstraint(
        "capacity_bytes = free_bytes + allocated_bytes + sanitizing_bytes + quarantined_bytes + withdrawn_bytes",
        name="device_bytes_sum_to_capacity",
    ),
    sa.CheckConstraint(
        "least(free_bytes, allocated_bytes, sanitizing_bytes, quarantined_bytes, withdrawn_bytes) >= 0",
        name="device_bytes_not_negative",
    ),
    sa.CheckConstraint(f"share_n BETWEEN 0 AND {SHARES_PER_DEVICE}", name="device_share_bounded"),
    sa.CheckConstraint("free_lds BETWEEN 0 AND 65535", name="device_free_lds_bounded"),
    sa.CheckConstraint(one_of("kind", ["sld", "mld", "dcd"]), name="device_kind_known"),
    sa.CheckConstraint(one_of("health", ["ok", "degraded", "failed", "unknown"]), name="device_health_known"),
    sa.CheckConstraint(
        one_of("admin_state", ["enabled", "cordoned", "draining", "maintenance", "retired"]),
        name="device_admin_state_known",
    ),
    sa.CheckConstraint(
        "admin_state <> 'retired' OR (pool_id IS NULL AND capacity_bytes = 0)", name="device_retired_holds_nothing"
    ),
    sa.CheckConstraint("fabric_id IS NOT NULL OR admin_state = 'retired'", name="device_has_fabric"),
    sa.Index(
        "device_with_room",
        "pool_id",
        "free_bytes",
        "number",
        postgresql_where=sa.text("health = 'ok' AND admin_state = 'enabled' AND free_bytes > 0"),
    ),
    sa.Index("device_fabric", "fabric_id", "name"),
    sa.Index("device_pool", "pool_id", "name"),
    sa.Index("device_unwell", "name", postgresql_where=sa.text("health <> 'ok'")),
    sa.Index("device_not_enabled", "name", postgresql_where=sa.text("admin_state <> 'enabled'")),
    postgresql_with={"fillfactor": "70"},
)

logical_device = sa.Table(
    "logical_device",
    metadata,
    sa.Column("device_no", sa.ForeignKey("device.number"), primary_key=True),
    sa.Column("ld_id", sa.SmallInteger, primary_key=True),
    sa.Column("id", sa.Uuid, nullable=False, unique=True),
    bytes_column("size_bytes", default=None),
    sa.Column("dirty", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("share_n", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("limit_n", sa.SmallInteger, nullable=False, server_default="0"),
    sa.CheckConstraint("ld_id BETWEEN 0 AND 15", name="logical_device_ld_id_bounded"),
    sa.CheckConstraint("size_bytes >= 0", name="logical_device_size_not_negative"),
)

host = sa.Table(
    "host",
    metadata,
    identity(),
    named(),
    sa.Column("cluster", sa.Text),
    sa.Column("node", sa.Text),
    sa.Column("node_uid", sa.Text),
    sa.Column("vppbs_max", sa.SmallInteger),
    sa.Column("decoders_max", sa.SmallInteger),
    labels(),
    sa.Column("boot_id", sa.Text),
    text_array("boot_ids_past"),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    instant("fenced_at"),
    sa.Column("fence_reason", sa.Text),
    generation(),
    created(),
    updated(),
    sa.Index("host_node", "cluster", "node", unique=True),
)

host_port = sa.Table(
    "host_port",
    metadata,
    sa.Column("switch_name", sa.Text, primary_key=True, comment="a name: hosts may be declared before discovery"),
    sa.Column("port_number", sa.SmallInteger, primary_key=True),
    sa.Column("host_id", sa.ForeignKey("host.id"), nullable=False),
    sa.Index("host_port_host", "host_id"),
)

tenant = sa.Table(
    "tenant",
    metadata,
    identity(),
    named(),
    sa.Column("quota_bytes", sa.BigInteger),
    sa.Column("quota_allocations", sa.Integer),
    sa.Column("quota_bandwidth", sa.BigInteger),
    bytes_column("used_bytes"),
    sa.Column("used_allocations", sa.Integer, nullable=False, server_default="0"),
    bytes_column("used_bandwidth"),
    generation(),
    created(),
    updated(),
    sa.CheckConstraint(
        "used_bytes >= 0 AND used_allocations >= 0 AND used_bandwidth >= 0", name="tenant_used_not_negative"
    ),
    sa.CheckConstraint("used_bytes <= quota_bytes", name="tenant_quota_bytes"),
    sa.CheckConstraint("used_allocations <= quota_allocations", name="tenant_quota_allocations"),
    sa.CheckConstraint("used_bandwidth <= quota_bandwidth", name="tenant_quota_bandwidth"),
    postgresql_with={"fillfactor": "50"},
)

tenant_consumer = sa.Table(
    "tenant_consumer",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("namespace", sa.Text, primary_key=True),
    sa.Column("tenant_id", sa.ForeignKey("tenant.id"), nullable=False),
)

qos_class = sa.Table(
    "qos_class",
    metadata,
    identity(),
    named(),
    bytes_column("min_bandwidth"),
    sa.Column("max_bandwidth", sa.BigInteger),
    sa.Column("max_latency_ns", sa.Integer),
    sa.Column("priority", sa.SmallInteger, nullable=False, server_default="0"),
    generation(),
    created(),
    updated(),
    sa.CheckConstraint("max_bandwidth >= min_bandwidth", name="qos_class_limit_not_below_guarantee"),
)

isolation_policy = sa.Table(
    "isolation_policy",
    metadata,
    identity(),
    named(),
    sa.Column("sharing", sa.Text, nullable=False),
    sa.Column("sanitize", sa.Text, nullable=False),
    generation(),
    created(),
    updated(),
    sa.CheckConstraint(
        one_of("sharing", ["shared-device", "tenant-device", "dedicated-device"]), name="isolation_policy_sharing_known"
    ),
    sa.CheckConstraint(
        one_of("sanitize", ["always", "on-tenant-change", "never"]), name="isolation_policy_sanitize_known"
    ),
)

allocation_key = sa.Table(
    "allocation_key",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column(
        "tombstone_scopes",
        pg.ARRAY(sa.Text),
        nullable=False,
        server_default="{}",
        comment="tenants or clusters whose DELETE came before any PUT",
    ),
    instant("expires_at"),
    sa.CheckConstraint("key ~ '^[A-Za-z0-9._~:-]{1,200}$'", name="allocation_key_shape"),
    sa.Index("allocation_key_expiry", "expires_at", postgresql_where=sa.text("expires_at IS NOT NULL")),
    comment="Locked first by every verb on the key, so that all of them stand in line.",
)

allocation = sa.Table(
    "allocation",
    metadata,
    identity(),
    sa.Column("key", sa.ForeignKey("allocation_key.key"), nullable=False),
    sa.Column("forgotten", sa.Boolean, nullable=False, server_default="false", comment="its tombstone is gone"),
    sa.Column("tenant_id", sa.ForeignKey("tenant.id"), nullable=False),
    sa.Column("consumer_kind", sa.Text),
    sa.Column("cluster", sa.Text),
    sa.Column("namespace", sa.Text),
    sa.Column("consumer_name", sa.Text),
    sa.Column("claim_uid", sa.Text),
    sa.Column("request", pg.JSONB, nullable=False),
    bytes_column("size_bytes", default=None),
    bytes_column("granted_bytes"),
    sa.Column("pool_id", sa.ForeignKey("pool.id")),
    sa.Column("host_id", sa.ForeignKey("host.id")),
    sa.Column("qos_class", sa.ForeignKey("qos_class.name"), nullable=False),
    sa.Column("isolation", sa.ForeignKey("isolation_policy.name"), nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("goal", sa.Text, nullable=False, server_default="hold"),
    sa.Column("failure", pg.JSONB),
    sa.Column("conditions", pg.JSONB, nullable=False, server_default="[]"),
    labels(),
    instant("deadline_at"),
    sa.Column("reservation_ttl_s", sa.Integer),
    instant("reservation_expires_at"),
    instant("finished_at"),
    state_changed(),
    generation(),
    created(),
    updated(),
    sa.CheckConstraint(one_of("phase", Phase), name="allocation_phase_known"),
    sa.CheckConstraint(one_of("goal", Goal), name="allocation_goal_known"),
    sa.CheckConstraint("size_bytes BETWEEN 1 AND 9007199254740991", name="allocation_size_bounded"),
    sa.Index("allocation_key_once", "key", unique=True, postgresql_where=sa.text("NOT forgotten")),
    # Lists show what is not forgotten, by id: history stays out of their way.
    *(
        sa.Index(f"allocation_{name}", column, "forgotten", "id")
        for name, column in (("tenant", "tenant_id"), ("pool", "pool_id"), ("host", "host_id"), ("phase", "phase"))
    ),
    *(
        sa.Index(
            f"allocation_{column}",
            column,
            "id",
            postgresql_where=sa.text(f"NOT forgotten AND {column} IS NOT NULL"),
        )
        for column in ("cluster", "claim_uid", "consumer_kind")
    ),
    sa.Index("allocation_kept", "id", postgresql_where=sa.text("NOT forgotten")),
    sa.Index("allocation_live_host", "host_id", "id", postgresql_where=sa.text(LIVE)),
    sa.Index(
        "allocation_reservation_expiry",
        "reservation_expires_at",
        postgresql_where=sa.text("phase = 'reserved' AND reservation_expires_at IS NOT NULL"),
    ),
)

attachment = sa.Table(
    "attachment",
    metadata,
    identity(),
    sa.Column("host_id", sa.ForeignKey("host.id"), comment="NULL: over, and its host deleted"),
    sa.Column("device_no", sa.ForeignKey("device.number"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("switch_id", sa.ForeignKey("switch.id"), nullable=False),
    sa.Column("vcs_number", sa.SmallInteger, nullable=False),
    sa.Column("vppb_number", sa.SmallInteger, nullable=False),
    sa.Column("port_number", sa.SmallInteger, nullable=False),
    sa.Column("ld_id", sa.SmallInteger, nullable=False, comment="LD of an MLD, host interface of a DCD, 0 of an SLD"),
    sa.Column("live", sa.Boolean, nullable=False, server_default="true"),
    sa.Column("state", sa.Text, nullable=False, server_default="wanted"),
    sa.Column("share_n", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("limit_n", sa.SmallInteger, nullable=False, server_default="255"),
    created(),
    updated(),
    sa.UniqueConstraint("id", "device_no", name="attachment_device_key"),
    sa.ForeignKeyConstraint(
        ["switch_id", "vcs_number", "vppb_number"],
        ["vppb.switch_id", "vppb.vcs_number", "vppb.number"],
        name="attachment_on_vppb",
    ),
    sa.CheckConstraint(one_of("kind", ["sld", "mld", "dcd"]), name="attachment_kind_known"),
    sa.CheckConstraint(one_of("state", ["wanted", "bound", "gone"]), name="attachment_state_known"),
    sa.CheckConstraint("host_id IS NOT NULL OR NOT live", name="attachment_live_has_host"),
    sa.CheckConstraint("share_n BETWEEN 0 AND 255 AND limit_n BETWEEN share_n AND 255", name="attachment_qos_bounded"),
    sa.Index("attachment_ld_once", "device_no", "ld_id", unique=True, postgresql_where=sa.text("live")),
    sa.Index(
        "attachment_vppb_once", "switch_id", "vcs_number", "vppb_number", unique=True, postgresql_where=sa.text("live")
    ),
    sa.Index(
        "attachment_dcd_host_once",
        "host_id",
        "device_no",
        unique=True,
        postgresql_where=sa.text("live AND kind = 'dcd'"),
    ),
    sa.Index("attachment_live_host", "host_id", postgresql_where=sa.text("live")),
    sa.Index("attachment_live", "id", postgresql_where=sa.text("live")),
)

segment = sa.Table(
    "segment",
    metadata,
    identity(),
    sa.Column("allocation_id", sa.ForeignKey("allocation.id"), nullable=False),
    sa.Column("device_no", sa.ForeignKey("device.number"), nullable=False),
    sa.Column("ld_id", sa.SmallInteger, comment="the LD held; an SLD is its own LD 0"),
    sa.Column("dpa_space", sa.SmallInteger, comment="the host interface its extents live in, on a DCD once bound"),
    bytes_column("size_bytes", default=None),
    bytes_column("min_bandwidth"),
    sa.Column("share_n", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("goal", sa.Text, nullable=False, server_default="hold"),
    sa.Column("attachment_id", sa.Uuid),
    instant("verified_at"),
    instant("unbound_at"),
    sa.Column("node_state", sa.Text),
    sa.Column("node_boot_id", sa.Text),
    sa.Column("numa_node", sa.Integer),
    sa.Column("dax_device", sa.Text),
    sa.Column("forgotten", sa.Boolean, nullable=False, server_default="false", comment="as its allocation is"),
    created(),
    updated(),
    sa.UniqueConstraint("id", "device_no", "dpa_space", name="segment_space_key"),
    sa.ForeignKeyConstraint(
        ["attachment_id", "device_no"],
        ["attachment.id", "attachment.device_no"],
        name="segment_attachment_of_its_device",
    ),
    sa.ForeignKeyConstraint(
        ["device_no", "ld_id"], ["logical_device.device_no", "logical_device.ld_id"], name="segment_of_ld"
    ),
    sa.CheckConstraint(one_of("phase", Phase), name="segment_phase_known"),
    sa.CheckConstraint(one_of("goal", Goal), name="segment_goal_known"),
    sa.CheckConstraint("size_bytes > 0", name="segment_size_positive"),
    sa.CheckConstraint("ld_id IS NULL OR dpa_space IS NULL", name="segment_ld_or_extents"),
    sa.CheckConstraint(one_of("node_state", ["online", "offline", "offline_failed"]), name="segment_node_state_known"),
    sa.CheckConstraint(
        "phase NOT IN ('bound', 'online', 'release_blocked')"
        " OR (verified_at IS NOT NULL AND attachment_id IS NOT NULL)",
        name="segment_bound_was_read_back",
    ),
    sa.CheckConstraint(
        "phase NOT IN ('releasing', 'sanitizing', 'reserved', 'released', 'failed')"
        " OR coalesce(node_state, 'offline') = 'offline'",
        name="segment_taken_only_when_offline",
    ),
    sa.CheckConstraint(
        "phase NOT IN ('online', 'release_blocked') OR node_state IN ('online', 'offline_failed')",
        name="segment_online_was_reported",
    ),
    sa.Index(
        "segment_ld_once",
        "device_no",
        "ld_id",
        unique=True,
        postgresql_where=sa.text(f"ld_id IS NOT NULL AND {LIVE}"),
    ),
    sa.Index("segment_allocation", "allocation_id"),
    sa.Index("segment_live_device", "device_no", postgresql_where=sa.text(LIVE)),
    sa.Index("segment_live_attachment", "attachment_id", postgresql_where=sa.text(LIVE)),
    sa.Index("segment_live", "id", postgresql_where=sa.text(LIVE)),
    sa.Index(
        "segment_live_phase",
        "phase",
        "device_no",
        postgresql_include=["size_bytes"],
        postgresql_where=sa.text(LIVE),
    ),
    sa.Index("segment_device", "device_no", "allocation_id", postgresql_where=sa.text("NOT forgotten")),
)

extent = sa.Table(
    "extent",
    metadata,
    sa.Column("segment_id", sa.Uuid, primary_key=True, comment="also the tag on the wire"),
    sa.Column("number", sa.SmallInteger, primary_key=True),
    sa.Column("device_no", sa.Integer, nullable=False),
    sa.Column("dpa_space", sa.SmallInteger, nullable=False),
    sa.Column("span", pg.INT8RANGE, nullable=False, comment="[start, end) in the host's DPA space, in bytes"),
    bytes_column("block_bytes", default=None),
    sa.ForeignKeyConstraint(
        ["segment_id", "device_no", "dpa_space"],
        ["segment.id", "segment.device_no", "segment.dpa_space"],
        name="extent_tag_has_one_host",
    ),
    sa.CheckConstraint("NOT isempty(span)", name="extent_not_empty"),
    sa.CheckConstraint(
        f"NOT lower_inf(span) AND NOT upper_inf(span) AND lower(span) >= 0 AND upper(span) < {ADDRESS_MAX}",
        name="extent_bounded",
    ),
    sa.CheckConstraint("block_bytes > 0", name="extent_block_positive"),
    sa.CheckConstraint("lower(span) % block_bytes = 0 AND upper(span) % block_bytes = 0", name="extent_aligned"),
    # Two owners of one byte is the bug we cannot ship, so PostgreSQL itself refuses it. Ranges of one integer
    # stand for equality, which GiST cannot do without an extension that managed databases may lack.
    pg.ExcludeConstraint(
        (sa.text("int4range(device_no, device_no, '[]')"), "&&"),
        (sa.text("int4range(dpa_space::integer, dpa_space::integer, '[]')"), "&&"),
        (sa.column("span"), "&&"),
        using="gist",
        name="extent_spans_disjoint",
    ),
    sa.Index("extent_space", "device_no", "dpa_space"),
)

operation = sa.Table(
    "operation",
    metadata,
    identity(),
    sa.Column("goal", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default="pending"),
    sa.Column("allocation_id", sa.ForeignKey("allocation.id")),
    sa.Column("fabric_id", sa.ForeignKey("fabric.id"), comment="NULL: over, and its fabric deleted"),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    instant("deadline_at"),
    sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("percent", sa.SmallInteger),
    sa.Column("eta_ms", sa.BigInteger),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text),
    created(),
    instant("started_at"),
    instant("finished_at"),
    generation(),
    sa.CheckConstraint(one_of("goal", Goal), name="operation_goal_known"),
    sa.CheckConstraint(one_of("state", OperationState), name="operation_state_known"),
    sa.CheckConstraint(
        f"({one_of('state', sorted(UNFINISHED))}) = (finished_at IS NULL)", name="operation_finished_has_time"
    ),
    sa.CheckConstraint("fabric_id IS NOT NULL OR finished_at IS NOT NULL", name="operation_unfinished_has_fabric"),
    sa.Index(
        "operation_unfinished_once",
        "allocation_id",
        unique=True,
        postgresql_where=sa.text(one_of("state", sorted(UNFINISHED))),
    ),
    sa.Index(
        "operation_due",
        "fabric_id",
        "next_attempt_at",
        postgresql_where=sa.text(one_of("state", sorted(UNFINISHED))),
    ),
    sa.Index("operation_state", "state", "id"),
    sa.Index("operation_goal", "goal", "id"),
    sa.Index("operation_fabric", "fabric_id", "id"),
    sa.Index("operation_allocation", "allocation_id", "id"),
)

operation_step = sa.Table(
    "operation_step",
    metadata,
    sa.Column("operation_id", sa.ForeignKey("operation.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("segment_id", sa.ForeignKey("segment.id")),
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("component", sa.Text, nullable=False),
    sa.Column("intent", pg.JSONB, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    instant("intended_at", nullable=False),
    sa.Column("outcome", sa.Text, comment="NULL: the process that intended it never said"),
    sa.Column("observed", pg.JSONB),
    instant("finished_at"),
    sa.CheckConstraint(one_of("outcome", ["done", "refused", "busy", "unknown"]), name="operation_step_outcome_known"),
    sa.Index("operation_step_segment", "segment_id", "step"),
)

evidence = sa.Table(
    "evidence",
    metadata,
    identity(),
    sa.Column("segment_id", sa.ForeignKey("segment.id"), nullable=False),
    sa.Column("device_no", sa.ForeignKey("device.number"), nullable=False),
    sa.Column("device_serial", sa.Text, nullable=False),
    sa.Column("operation_id", sa.ForeignKey("operation.id")),
    sa.Column("method", sa.Text, nullable=False),
    bytes_column("size_bytes", default=None),
    instant("started_at", nullable=False),
    instant("ended_at", nullable=False),
    sa.Column("read_back", pg.JSONB, nullable=False),
    sa.CheckConstraint(
        one_of("method", ["completion", "release_with_sanitize", "host_attested", "operator"]),
        name="evidence_method_known",
    ),
    sa.CheckConstraint("ended_at >= started_at", name="evidence_ends_after_start"),
    sa.Index("evidence_segment", "segment_id", "ended_at"),
    comment="Why bytes may be handed on: how, when and on which device they were erased.",
)

EVENT_COLUMNS = (
    ("at", sa.DateTime(timezone=True), False),
    ("type", sa.Text, False),
    ("object_kind", sa.Text, False),
    ("object_id", sa.Text, False),
    ("key", sa.Text, True),
    ("claim_uid", sa.Text, True),
    ("cluster", sa.Text, True),
    ("tenant", sa.Text, True),
    ("host", sa.Text, True),
    ("device", sa.Text, True),
    ("pool", sa.Text, True),
    ("before", pg.JSONB, True),
    ("after", pg.JSONB, True),
    ("actor", sa.Text, False),
    ("request_id", sa.Text, True),
    ("cause", sa.Text, True),
)


def event_columns() -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=nullable) for name, kind, nullable in EVENT_COLUMNS]


event_outbox = sa.Table(
    "event_outbox",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    *event_columns(),
    comment="Events as written by their transactions, not yet numbered.",
)

event = sa.Table(
    "event",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    *event_columns(),
    sa.Index("event_key", "key", "seq"),
    sa.Index("event_kind", "object_kind", "seq"),
    *(
        sa.Index(f"event_{name}", name, "seq", postgresql_where=sa.text(f"{name} IS NOT NULL"))
        for name in ("claim_uid", "host", "device")
    ),
    postgresql_partition_by="RANGE (seq)",
)

event_head = sa.Table(
    "event_head",
    metadata,
    sa.Column("singleton", sa.Boolean, primary_key=True, server_default="true"),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column(
        "oldest_seq",
        sa.BigInteger,
        nullable=False,
        server_default="1",
        comment="The first number that may still be asked for; what is below is dropped later.",
    ),
    sa.Column("oldest_moved_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column(
        "partition_rows",
        sa.BigInteger,
        nullable=False,
        server_default="1000000",
        comment="Numbers in one partition; it stays as it is once there are events.",
    ),
    sa.CheckConstraint("partition_rows > 0", name="event_head_partition_rows_positive"),
    sa.CheckConstraint("singleton", name="event_head_single"),
)

event_kind_head = sa.Table(
    "event_kind_head",
    metadata,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False, server_default="0", comment="the kind's last event"),
    sa.Column("changes", sa.BigInteger, nullable=False, server_default="0", comment="change marks counted so far"),
    comment="What the ETag of a list is made of: moves with every change of a kind of object.",
)

change_mark = sa.Table(
    "change_mark",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    comment="A change that no event tells of, not yet counted in event_kind_head.",
)

tally = sa.Table(
    "tally",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("label", sa.Text, primary_key=True),
    sa.Column("shard", sa.SmallInteger, primary_key=True, comment="so that those who count at once do not wait"),
    sa.Column("value", sa.BigInteger, nullable=False),
    comment="What is counted as it happens, because nobody may count it afterwards.",
)

frame = sa.Table(
    "frame",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("operation_id", sa.ForeignKey("operation.id")),
    sa.Column("endpoint", sa.Text, nullable=False),
    sa.Column("component", sa.Text, nullable=False),
    sa.Column("opcode", sa.Integer, nullable=False),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("request", pg.JSONB, nullable=False),
    sa.Column("response", pg.JSONB),
    sa.Column("request_raw", sa.LargeBinary, nullable=False),
    sa.Column("response_raw", sa.LargeBinary, nullable=False),
    sa.Column("return_code", sa.Integer),
    instant("sent_at", nullable=False),
    instant("answered_at"),
    sa.Index("frame_operation", "operation_id", "id"),
)

api_token = sa.Table(
    "api_token",
    metadata,
    identity(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False, unique=True, comment="SHA-256; the secret is never stored"),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text),
    sa.Column("cluster", sa.Text),
    sa.Column("host", sa.Text),
    created(),
    instant("expires_at"),
    instant("revoked_at"),
    sa.CheckConstraint(one_of("role", Role), name="api_token_role_known"),
    sa.CheckConstraint("octet_length(hash) = 32", name="api_token_hash_is_sha256"),
)
