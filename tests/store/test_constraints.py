"""What the database refuses by itself, whoever writes. Each case breaks one rule, and only that one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.units import GiB, MiB, TiB
from fabric_manager.store import tables
from fabric_manager.store.database import plain_engine
from tests.store.rows import NOBODY, NOW, Row, Rows

CHECK, UNIQUE, FOREIGN_KEY, EXCLUSION, PRIVILEGE = "23514", "23505", "23503", "23P01", "42501"
Violation = Callable[[Rows], Awaitable[Any]]
CASES: dict[str, tuple[str, Violation]] = {}


def breaks(name: str, state: str) -> Callable[[Violation], Violation]:
    def register(violation: Violation) -> Violation:
        assert name not in CASES, name
        CASES[name] = (state, violation)
        return violation

    return register


def row_that_breaks(name: str, factory: str, **fields: Any) -> None:
    """The factory's safe row but for `fields`."""
    breaks(name, CHECK)(lambda rows: getattr(rows, factory)(**fields))


def twice_breaks(name: str, factory: str, *same: str) -> None:
    """Two safe rows that agree in `same`."""

    async def violation(rows: Rows) -> None:
        first = await getattr(rows, factory)()
        await getattr(rows, factory)(**{field: getattr(first, field) for field in same})

    breaks(name, UNIQUE)(violation)


# fmt: off
for name in ("fabric", "pool", "switch", "device", "host", "tenant", "qos_class", "isolation_policy"):
    twice_breaks(f"{name}_name_key", name, "name")
twice_breaks("switch_serial_key",       "switch",     "serial")
twice_breaks("device_serial_key",       "device",     "serial")
twice_breaks("port_number_key",         "port",       "switch_id", "number")
twice_breaks("vcs_number_key",          "vcs",        "switch_id", "number")
twice_breaks("logical_device_id_key",   "ld",         "id")
twice_breaks("allocation_key_once",     "allocation", "key")
twice_breaks("api_token_hash_key",      "api_token",  "hash")

row_that_breaks("fabric_admin_state_known",       "fabric", admin_state="asleep")
row_that_breaks("fabric_state_known",             "fabric", state="asleep")
row_that_breaks("fabric_epoch_not_negative",      "fabric", epoch=-1)
row_that_breaks("pool_kind_known",                "pool", kind="ram")
row_that_breaks("port_role_known",                "port", role="sideways")
row_that_breaks("port_number_bounded",            "port", number=256)
row_that_breaks("vcs_number_bounded",             "vcs", number=256)
row_that_breaks("vppb_state_known",               "vppb", state="asleep")
row_that_breaks("device_bytes_sum_to_capacity",   "device", free_bytes=TiB - 1)
row_that_breaks("device_bytes_not_negative",      "device", allocated_bytes=-1, free_bytes=TiB + 1)
row_that_breaks("device_share_bounded",           "device", share_n=257)
row_that_breaks("device_free_lds_bounded",        "device", free_lds=1 << 16)
row_that_breaks("device_kind_known",              "device", kind="ram")
row_that_breaks("device_health_known",            "device", health="poorly")
row_that_breaks("device_admin_state_known",       "device", admin_state="asleep")
row_that_breaks("device_retired_holds_nothing",   "device", admin_state="retired")
row_that_breaks("device_has_fabric",              "device", fabric_id=NOBODY)
row_that_breaks("logical_device_ld_id_bounded",   "ld", ld_id=16)
row_that_breaks("logical_device_size_not_negative", "ld", size_bytes=-1)
row_that_breaks("tenant_used_not_negative",       "tenant", used_bytes=-1)
row_that_breaks("tenant_quota_bytes",             "tenant", quota_bytes=1, used_bytes=2)
row_that_breaks("tenant_quota_allocations",       "tenant", quota_allocations=1, used_allocations=2)
row_that_breaks("tenant_quota_bandwidth",         "tenant", quota_bandwidth=1, used_bandwidth=2)
row_that_breaks("qos_class_limit_not_below_guarantee", "qos_class", min_bandwidth=2, max_bandwidth=1)
row_that_breaks("isolation_policy_sharing_known", "isolation_policy", sharing="anything")
row_that_breaks("isolation_policy_sanitize_known", "isolation_policy", sanitize="sometimes")
row_that_breaks("allocation_key_shape",           "key", key="a key")
row_that_breaks("allocation_phase_known",         "allocation", phase="asleep")
row_that_breaks("allocation_goal_known",          "allocation", goal="glory")
row_that_breaks("allocation_size_bounded",        "allocation", size_bytes=1 << 53)
row_that_breaks("attachment_kind_known",          "attachment", kind="ram")
row_that_breaks("attachment_state_known",         "attachment", state="asleep")
row_that_breaks("attachment_live_has_host",       "attachment", host_id=NOBODY)
row_that_breaks("attachment_qos_bounded",         "attachment", share_n=10, limit_n=9)
row_that_breaks("segment_phase_known",            "segment", phase="asleep")
row_that_breaks("segment_goal_known",             "segment", goal="glory")
row_that_breaks("segment_size_positive",          "segment", size_bytes=0)
row_that_breaks("segment_node_state_known",       "bound_segment", node_state="asleep")
row_that_breaks("segment_online_was_reported",    "bound_segment", phase="online", node_state="offline")
row_that_breaks("segment_taken_only_when_offline", "segment", phase="releasing", node_state="online")
row_that_breaks("segment_bound_was_read_back",    "bound_segment", verified_at=None)
row_that_breaks("extent_not_empty",               "extent", span="empty")
row_that_breaks("extent_bounded",                 "extent", span="[0,)")
row_that_breaks("extent_block_positive",          "extent", block_bytes=-2 * MiB)
row_that_breaks("extent_aligned",                 "extent", span=(MiB, GiB))
row_that_breaks("operation_goal_known",           "operation", goal="glory")
row_that_breaks("operation_state_known",          "operation", state="asleep", finished_at=NOW)
row_that_breaks("operation_finished_has_time",    "operation", state="done")
row_that_breaks("operation_unfinished_has_fabric", "operation", fabric_id=NOBODY)
row_that_breaks("operation_step_outcome_known",   "step", outcome="maybe")
row_that_breaks("evidence_method_known",          "evidence", method="hope")
row_that_breaks("evidence_ends_after_start",      "evidence", ended_at=NOW - timedelta(seconds=1))
row_that_breaks("api_token_role_known",           "api_token", role="king")
row_that_breaks("api_token_hash_is_sha256",       "api_token", hash=b"the secret itself")
# fmt: on


@breaks("event_head_single", CHECK)
async def a_second_head(rows: Rows) -> None:
    await rows.event_head(singleton=False)


@breaks("device_number_key", UNIQUE)
async def a_number_given_twice(rows: Rows) -> None:
    first = await rows.device()
    await rows.tx.exec_driver_sql(f"ALTER TABLE device ALTER COLUMN number RESTART WITH {first.number}")
    await rows.device()


@breaks("event_head_partition_rows_positive", CHECK)
async def partitions_of_nothing(rows: Rows) -> None:
    await rows.tx.execute(sa.update(tables.event_head).values(partition_rows=0))


@breaks("host_node", UNIQUE)
async def two_hosts_on_one_node(rows: Rows) -> None:
    for _ in range(2):
        await rows.host(cluster="prod", node="node-3")


@breaks("vppb_of_vcs", FOREIGN_KEY)
async def a_vppb_of_nothing(rows: Rows) -> None:
    await rows.vppb(switch_id=(await rows.switch()).id, vcs_number=9)


@breaks("device_pool_of_its_kind", FOREIGN_KEY)
async def a_dcd_in_a_pool_of_mlds(rows: Rows) -> None:
    await rows.device(kind="dcd", pool_id=(await rows.pool(kind="mld")).id)


@breaks("attachment_on_vppb", FOREIGN_KEY)
async def an_attachment_on_no_vppb(rows: Rows) -> None:
    await rows.attachment(switch_id=(await rows.switch()).id, vcs_number=0, vppb_number=0)


@breaks("attachment_ld_once", UNIQUE)
async def one_ld_for_two_hosts(rows: Rows) -> None:
    device = await rows.device()
    for _ in range(2):
        await rows.attachment(device_no=device.number, ld_id=3)


@breaks("attachment_vppb_once", UNIQUE)
async def two_devices_on_one_vppb(rows: Rows) -> None:
    vppb = await rows.vppb()
    for _ in range(2):
        await rows.attachment(switch_id=vppb.switch_id, vcs_number=vppb.vcs_number, vppb_number=vppb.number)


@breaks("attachment_dcd_host_once", UNIQUE)
async def two_standing_attachments(rows: Rows) -> None:
    host, device = await rows.host(), await rows.device(kind="dcd")
    for ld_id in range(2):
        await rows.attachment(host_id=host.id, device_no=device.number, kind="dcd", ld_id=ld_id)


@breaks("segment_ld_once", UNIQUE)
async def one_ld_for_two_tenants(rows: Rows) -> None:
    ld = await rows.ld()
    for _ in range(2):
        await rows.segment(device_no=ld.device_no, ld_id=ld.ld_id)


@breaks("segment_of_ld", FOREIGN_KEY)
async def a_segment_of_an_ld_that_is_not_carved(rows: Rows) -> None:
    await rows.segment(ld_id=7)


@breaks("segment_ld_or_extents", CHECK)
async def a_segment_with_both(rows: Rows) -> None:
    ld = await rows.ld()
    await rows.segment(device_no=ld.device_no, ld_id=ld.ld_id, dpa_space=0)


@breaks("segment_attachment_of_its_device", FOREIGN_KEY)
async def a_segment_that_hangs_on_another_device(rows: Rows) -> None:
    await rows.segment(phase="binding", attachment_id=(await rows.attachment()).id)


@breaks("extent_tag_has_one_host", FOREIGN_KEY)
async def one_tag_in_two_hosts(rows: Rows) -> None:
    segment = await rows.segment(dpa_space=0)
    await rows.extent(segment=segment, number=0)
    await rows.extent(segment=segment, number=1, dpa_space=1)


@breaks("extent_spans_disjoint", EXCLUSION)
async def two_owners_of_one_block(rows: Rows) -> None:
    device = await rows.device(kind="dcd")
    for start in (0, GiB - 2 * MiB):
        segment = await rows.segment(device_no=device.number, dpa_space=3)
        await rows.extent(segment=segment, span=(start, start + GiB))


@breaks("operation_unfinished_once", UNIQUE)
async def two_goals_at_once(rows: Rows) -> None:
    allocation = await rows.allocation()
    for goal in ("bind", "release"):
        await rows.operation(allocation_id=allocation.id, goal=goal)


async def sanitizing(rows: Rows) -> Row:
    return await rows.segment(phase="sanitizing", unbound_at=NOW)


@breaks("segment_follows_lifecycle", CHECK)
async def from_reserved_to_sanitizing(rows: Rows) -> None:
    await rows.update(tables.segment, await rows.segment(), phase="sanitizing")


@breaks("segment_sanitized_with_evidence", CHECK)
async def free_with_evidence_of_an_earlier_erasure(rows: Rows) -> None:
    segment = await sanitizing(rows)
    earlier = NOW - timedelta(seconds=1)
    await rows.evidence(segment=segment, started_at=earlier, ended_at=earlier)
    await rows.update(tables.segment, segment, phase="released")


@breaks("allocation_keeps_tenant", CHECK)
async def another_tenant(rows: Rows) -> None:
    await rows.update(tables.allocation, await rows.allocation(), tenant_id=(await rows.tenant()).id)


@breaks("event_is_append_only", PRIVILEGE)
async def a_forged_event(rows: Rows) -> None:
    await rows.event()
    await rows.tx.execute(sa.update(tables.event).values(actor="somebody else"))


@breaks("event_is_not_truncated", PRIVILEGE)
async def no_events_at_all(rows: Rows) -> None:
    await rows.tx.execute(sa.text("TRUNCATE event"))


@breaks("evidence_is_append_only", PRIVILEGE)
async def no_evidence(rows: Rows) -> None:
    await rows.evidence()
    await rows.tx.execute(sa.delete(tables.evidence))


@breaks("evidence_is_not_truncated", PRIVILEGE)
async def no_evidence_at_all(rows: Rows) -> None:
    await rows.tx.execute(sa.text("TRUNCATE evidence"))


# What stops the violation when it is no constraint: the trigger that raises in the constraint's name.
TRIGGERS = {
    "segment_follows_lifecycle": ("segment", "segment_follows_lifecycle"),
    "segment_sanitized_with_evidence": ("segment", "segment_follows_lifecycle"),
    "allocation_keeps_tenant": ("allocation", "allocation_counts_for_tenant"),
    "event_is_append_only": ("event", "event_is_append_only"),
    "event_is_not_truncated": ("event", "event_is_not_truncated"),
    "evidence_is_append_only": ("evidence", "evidence_is_append_only"),
    "evidence_is_not_truncated": ("evidence", "evidence_is_not_truncated"),
}

# Uniqueness over more than the primary key says nothing new: it is there for others to refer to.
IN_CATALOG = """
  SELECT conname FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid
  WHERE c.connamespace = current_schema()::regnamespace AND NOT t.relispartition AND t.relname <> 'alembic_version'
    AND (c.contype IN ('c', 'x') OR c.contype = 'f' AND conname NOT LIKE '%\\_fkey' OR c.contype = 'u' AND NOT EXISTS (
      SELECT FROM pg_constraint p WHERE p.conrelid = c.conrelid AND p.contype = 'p' AND p.conkey <@ c.conkey))
  UNION ALL
  SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
  WHERE i.relnamespace = current_schema()::regnamespace AND x.indisunique AND NOT i.relispartition
    AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.oid)
  UNION ALL
  SELECT coalesce(named[1], t.tgname) FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
  JOIN pg_class r ON r.oid = t.tgrelid
  LEFT JOIN LATERAL regexp_matches(f.prosrc, 'CONSTRAINT = ''(\\w+)''', 'g') AS named ON true
  WHERE NOT t.tgisinternal AND NOT r.relispartition AND f.prosrc LIKE '%RAISE EXCEPTION%'
"""


@pytest.fixture(scope="module")
async def module_url(new_database: Callable[[], Awaitable[str]]) -> str:
    return await new_database()


@pytest.fixture
async def tx(module_url: str) -> AsyncIterator[AsyncConnection]:
    """Rolled back in the end, so that all tests of this file share a database."""
    engine = plain_engine(module_url)
    async with engine.connect() as connection:
        yield connection
        await connection.rollback()
    await engine.dispose()


async def test_every_rule_of_the_database_has_a_case(tx: AsyncConnection) -> None:
    assert set((await tx.exec_driver_sql(IN_CATALOG)).scalars()) == set(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
async def test_the_database_refuses(tx: AsyncConnection, name: str) -> None:
    state, violation = CASES[name]
    with pytest.raises(sa.exc.DBAPIError) as refused:
        async with tx.begin_nested():
            await violation(Rows(tx))
    cause = refused.value.__cause__
    assert cause is not None
    original = cause.__cause__
    assert original is not None
    assert getattr(original, "sqlstate", None) == state
    if state != PRIVILEGE:
        assert getattr(original, "constraint_name", None) == name
    await switch_off(tx, name)
    await violation(Rows(tx))  # nothing else stood in its way


async def switch_off(tx: AsyncConnection, name: str) -> None:
    if name in TRIGGERS:
        table, trigger = TRIGGERS[name]
        await tx.exec_driver_sql(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")
        return
    find = sa.text("SELECT conrelid::regclass::text FROM pg_constraint WHERE conname = :name AND conparentid = 0")
    owner = (await tx.execute(find, {"name": name})).scalar_one_or_none()
    drop = f"DROP INDEX {name}" if owner is None else f"ALTER TABLE {owner} DROP CONSTRAINT {name} CASCADE"
    await tx.exec_driver_sql(drop)


async def test_what_is_over_does_not_stand_in_the_way(tx: AsyncConnection) -> None:
    """The partial indexes hold for the living only; the same span in another host's space is another memory."""
    rows = Rows(tx)
    ld = await rows.ld()
    for phase in ("released", "failed", "reserved"):
        await rows.segment(device_no=ld.device_no, ld_id=ld.ld_id, phase=phase)
    device, vppb = await rows.device(), await rows.vppb()
    place = {"switch_id": vppb.switch_id, "vcs_number": vppb.vcs_number, "vppb_number": vppb.number}
    for live in (False, True):
        await rows.attachment(device_no=device.number, live=live, **place)
    for space in range(2):
        segment = await rows.segment(device_no=device.number, dpa_space=space)
        await rows.extent(segment=segment)
        await rows.extent(segment=segment, number=1, span=(GiB, 2 * GiB))
    allocation = await rows.allocation()
    await rows.operation(allocation_id=allocation.id, state="superseded", finished_at=NOW)
    await rows.operation(allocation_id=allocation.id)


async def test_bytes_move_with_the_phase_whoever_writes_it(tx: AsyncConnection) -> None:
    rows = Rows(tx)
    ld = await rows.ld()
    segment = await rows.segment(device_no=ld.device_no, ld_id=ld.ld_id, size_bytes=ld.size_bytes)
    counters = sa.select(
        tables.device.c.free_bytes,
        tables.device.c.allocated_bytes,
        tables.device.c.quarantined_bytes,
        tables.device.c.free_lds,
    ).where(tables.device.c.number == ld.device_no)
    held = (TiB - 64 * GiB, 64 * GiB, 0, 0xFFFE)
    assert (await tx.execute(counters)).one() == held
    await rows.update(tables.segment, segment, phase="binding")
    assert (await tx.execute(counters)).one() == held
    await rows.update(tables.segment, segment, phase="quarantined")
    assert (await tx.execute(counters)).one() == (TiB - 64 * GiB, 0, 64 * GiB, 0xFFFE)
