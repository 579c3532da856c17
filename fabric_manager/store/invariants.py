"""The promises of the product as queries over the live database: each answers what breaks it."""

# ruff: noqa: S608 (the queries are put together from constants of this file)

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.lifecycle import PRECEDENCE

VIOLATIONS_MAX = 100  # shown of each check
EVENTS_WINDOW = 10_000  # the newest event numbers that are looked at
OVERDUE_S = 60  # an operation this long past its deadline is stuck

IN_ORDER = ", ".join(f"'{phase}'" for phase in PRECEDENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    name: str
    objects: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """`examined` is how many things the promise was held against."""

    name: str
    examined: int
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`examined` selects a count; `broken` selects (objects text[], detail text), a row for each violation."""

    name: str
    examined: str
    broken: str


CHECKS: Sequence[Check] = (
    Check(
        name="device_bytes_add_up",
        examined="SELECT count(*) FROM device",
        broken="""
          SELECT ARRAY[name], format('capacity %s is not free %s + allocated %s + sanitizing %s + quarantined %s'
                                     ' + withdrawn %s', capacity_bytes, free_bytes, allocated_bytes, sanitizing_bytes,
                                     quarantined_bytes, withdrawn_bytes)
          FROM device
          WHERE capacity_bytes <> free_bytes + allocated_bytes + sanitizing_bytes + quarantined_bytes + withdrawn_bytes
             OR least(free_bytes, allocated_bytes, sanitizing_bytes, quarantined_bytes, withdrawn_bytes) < 0""",
    ),
    Check(
        name="device_counters_equal_segments",
        examined="SELECT count(*) FROM device",
        broken="""
          SELECT ARRAY[d.name], format('counts allocated %s, sanitizing %s, quarantined %s; segments hold %s, %s, %s',
            d.allocated_bytes, d.sanitizing_bytes, d.quarantined_bytes, s.allocated, s.sanitizing, s.quarantined)
          FROM device d, LATERAL (
            SELECT coalesce(sum(size_bytes) FILTER (WHERE bucket(phase) = 'allocated'), 0) AS allocated,
                   coalesce(sum(size_bytes) FILTER (WHERE bucket(phase) = 'sanitizing'), 0) AS sanitizing,
                   coalesce(sum(size_bytes) FILTER (WHERE bucket(phase) = 'quarantined'), 0) AS quarantined
            FROM segment WHERE device_no = d.number AND phase NOT IN ('failed', 'released')) s
          WHERE (d.allocated_bytes, d.sanitizing_bytes) <> (s.allocated, s.sanitizing)
             OR d.quarantined_bytes < s.quarantined""",
    ),
    Check(
        name="free_lds_are_unheld",
        examined="SELECT count(*) FROM logical_device",
        broken="""
          SELECT ARRAY[d.name, l.ld_id::text],
                 format('free: %s, held: %s, dirty: %s', d.free_lds & (1 << l.ld_id) <> 0, s.id IS NOT NULL, l.dirty)
          FROM logical_device l JOIN device d ON d.number = l.device_no AND d.kind = 'mld'
          LEFT JOIN segment s ON s.device_no = l.device_no AND s.ld_id = l.ld_id
            AND s.phase NOT IN ('failed', 'released')
          WHERE (d.free_lds & (1 << l.ld_id) <> 0) AND (s.id IS NOT NULL OR l.dirty OR l.size_bytes = 0)
             OR (d.free_lds & (1 << l.ld_id) = 0) AND s.id IS NULL AND NOT l.dirty AND l.size_bytes > 0""",
    ),
    Check(
        name="one_live_segment_per_ld",
        examined="SELECT count(*) FROM segment WHERE ld_id IS NOT NULL AND phase NOT IN ('failed', 'released')",
        broken="""
          SELECT ARRAY[d.name, s.ld_id::text] || array_agg(s.id::text), format('held by %s segments', count(*))
          FROM segment s JOIN device d ON d.number = s.device_no
          WHERE s.ld_id IS NOT NULL AND s.phase NOT IN ('failed', 'released')
          GROUP BY d.name, s.ld_id HAVING count(*) > 1""",
    ),
    Check(
        name="one_live_attachment_per_vppb",
        examined="SELECT count(*) FROM attachment WHERE live",
        broken="""
          SELECT array_agg(id::text), format('vcs %s, vppb %s', vcs_number, vppb_number) FROM attachment WHERE live
          GROUP BY switch_id, vcs_number, vppb_number HAVING count(*) > 1""",
    ),
    Check(
        name="extents_are_disjoint",
        examined="SELECT count(*) FROM extent",
        broken="""
          SELECT ARRAY[d.name, e.segment_id::text, f.segment_id::text],
                 format('%s and %s overlap in space %s', e.span, f.span, e.dpa_space)
          FROM extent e JOIN extent f ON f.device_no = e.device_no AND f.dpa_space = e.dpa_space AND f.span && e.span
            AND (f.segment_id, f.number) > (e.segment_id, e.number)
          JOIN device d ON d.number = e.device_no""",
    ),
    Check(
        name="extents_are_inside_a_region",
        examined="SELECT count(*) FROM extent",
        broken="""
          SELECT ARRAY[d.name, e.segment_id::text], format('%s is in no region of the device', e.span)
          FROM extent e JOIN device d ON d.number = e.device_no
          WHERE NOT EXISTS (
            SELECT FROM jsonb_array_elements(d.dc_regions) r
            WHERE int8range((r->>'base_bytes')::bigint, (r->>'base_bytes')::bigint + (r->>'size_bytes')::bigint)
                  @> e.span)""",
    ),
    Check(
        name="extents_of_a_segment_add_up",
        examined="SELECT count(DISTINCT segment_id) FROM extent",
        broken="""
          SELECT ARRAY[s.id::text],
                 format('extents hold %s of %s bytes', sum(upper(e.span) - lower(e.span)), s.size_bytes)
          FROM segment s JOIN extent e ON e.segment_id = s.id
          WHERE s.phase IN ('bound', 'online', 'release_blocked')
          GROUP BY s.id HAVING sum(upper(e.span) - lower(e.span)) <> s.size_bytes""",
    ),
    Check(
        name="tenant_usage_equals_allocations",
        examined="SELECT count(*) FROM tenant",
        broken="""
          SELECT ARRAY[t.name], format('counts %s bytes in %s allocations; they hold %s in %s',
                                       t.used_bytes, t.used_allocations, a.bytes, a.allocations)
          FROM tenant t, LATERAL (
            SELECT coalesce(sum(granted_bytes), 0) AS bytes, count(*) AS allocations FROM allocation
            WHERE tenant_id = t.id AND phase NOT IN ('failed', 'released')) a
          WHERE (t.used_bytes, t.used_allocations) <> (a.bytes, a.allocations)
             OR t.used_bytes > t.quota_bytes OR t.used_allocations > t.quota_allocations""",
    ),
    Check(
        name="allocation_phase_is_its_segments",
        examined="SELECT count(*) FROM allocation",
        broken=f"""
          SELECT ARRAY[a.key], format('is %s; its segments say %s', a.phase, s.phase)
          FROM allocation a, LATERAL (
            SELECT coalesce((SELECT x.phase FROM segment x WHERE x.allocation_id = a.id AND x.phase <> 'released'
                             ORDER BY array_position(ARRAY[{IN_ORDER}], x.phase) LIMIT 1), 'released') AS phase) s
          WHERE a.phase <> s.phase""",
    ),
    Check(
        name="granted_equals_segments",
        examined="SELECT count(*) FROM allocation WHERE phase NOT IN ('failed', 'released')",
        broken="""
          SELECT ARRAY[a.key],
                 format('granted %s; its segments hold %s, %s was asked', a.granted_bytes, s.bytes, a.size_bytes)
          FROM allocation a, LATERAL (
            SELECT coalesce(sum(size_bytes), 0) AS bytes FROM segment
            WHERE allocation_id = a.id AND phase NOT IN ('failed', 'released')) s
          WHERE a.phase NOT IN ('failed', 'released')
            AND (a.granted_bytes <> s.bytes OR a.granted_bytes < a.size_bytes)""",
    ),
    Check(
        name="bound_was_read_back",
        examined="SELECT count(*) FROM segment WHERE phase IN ('bound', 'online', 'release_blocked')",
        broken="""
          SELECT ARRAY[s.id::text], format('%s; read back at %s, attachment %s', s.phase, s.verified_at, t.state)
          FROM segment s LEFT JOIN attachment t ON t.id = s.attachment_id AND t.live
          LEFT JOIN allocation a ON a.id = s.allocation_id
          WHERE s.phase IN ('bound', 'online', 'release_blocked')
            AND (s.verified_at IS NULL OR t.id IS NULL OR t.state <> 'bound'
                 OR t.host_id IS DISTINCT FROM a.host_id)""",
    ),
    Check(
        name="free_after_use_has_evidence",
        examined="SELECT count(*) FROM segment WHERE unbound_at IS NOT NULL AND phase IN ('released', 'failed')",
        broken="""
          SELECT ARRAY[s.id::text],
                 format('%s; unbound at %s with no evidence of sanitizing since', s.phase, s.unbound_at)
          FROM segment s
          WHERE s.unbound_at IS NOT NULL AND s.phase IN ('released', 'failed', 'reserved') AND NOT EXISTS (
            SELECT FROM evidence e WHERE e.segment_id = s.id AND e.ended_at >= s.unbound_at
              AND e.device_no = s.device_no AND e.size_bytes >= s.size_bytes)""",
    ),
    Check(
        name="seen_by_a_host_was_unbound_first",
        examined="SELECT count(*) FROM segment WHERE verified_at IS NOT NULL",
        broken="""
          SELECT ARRAY[s.id::text], format('%s, read back at %s, unbound at %s', s.phase, s.verified_at, s.unbound_at)
          FROM segment s
          WHERE s.verified_at IS NOT NULL AND s.phase IN ('sanitizing', 'released', 'failed', 'reserved')
            AND (s.unbound_at IS NULL OR s.unbound_at < s.verified_at)""",
    ),
    Check(
        name="taken_only_from_a_host_that_let_go",
        examined="SELECT count(*) FROM segment WHERE phase IN ('releasing', 'sanitizing')",
        broken="""
          SELECT ARRAY[s.id::text], format('%s while the node says %s', s.phase, s.node_state) FROM segment s
          WHERE s.phase IN ('releasing', 'sanitizing') AND coalesce(s.node_state, 'offline') <> 'offline'""",
    ),
    Check(
        name="work_goes_on_while_the_phase_is_on_the_way",
        examined="SELECT count(*) FROM allocation WHERE phase NOT IN ('failed', 'released')",
        broken="""
          SELECT ARRAY[a.key], format('is %s with goal %s and %s unfinished operations', a.phase, a.goal, o.count)
          FROM allocation a, LATERAL (
            SELECT count(*) AS count FROM operation
            WHERE allocation_id = a.id AND state IN ('pending', 'running')) o
          WHERE a.phase <> 'quarantined'  -- a release asked of it waits until it is cleared
            AND (a.phase IN ('binding', 'release_blocked', 'releasing', 'sanitizing')) <> (o.count = 1)""",
    ),
    Check(
        name="no_operation_is_overdue",
        examined="SELECT count(*) FROM operation WHERE state IN ('pending', 'running')",
        broken=f"""
          SELECT ARRAY[o.id::text], format('%s should have ended at %s; %s attempts, %s', o.goal, o.deadline_at,
                                           o.attempts, o.reason)
          FROM operation o JOIN fabric f ON f.id = o.fabric_id
          WHERE o.state IN ('pending', 'running') AND f.admin_state = 'active' AND f.state = 'up'
            AND o.deadline_at < now() - interval '{OVERDUE_S} s'""",
    ),
    Check(
        name="events_have_no_gap",
        examined=f"SELECT least({EVENTS_WINDOW}, seq - oldest_seq + 1) FROM event_head",
        broken=f"""
          SELECT ARRAY[g.seq::text], 'this number was given to no event'
          FROM event_head h, generate_series(greatest(h.oldest_seq, h.seq - {EVENTS_WINDOW} + 1), h.seq) g(seq)
          WHERE NOT EXISTS (SELECT FROM event e WHERE e.seq = g.seq)
          UNION ALL
          SELECT ARRAY[e.seq::text], 'numbered above the head' FROM event_head h JOIN event e ON e.seq > h.seq""",
    ),
    Check(
        name="quarantine_tells_why",
        examined="SELECT count(*) FROM allocation WHERE phase = 'quarantined'",
        broken="""
          SELECT ARRAY[a.key], 'is quarantined and carries neither a failure nor a condition' FROM allocation a
          WHERE a.phase = 'quarantined' AND a.failure IS NULL AND a.conditions = '[]'""",
    ),
)


async def check(tx: AsyncConnection, wanted: Check) -> Checked:
    examined = (await tx.execute(sa.text(wanted.examined))).scalar_one()
    rows = await tx.execute(sa.text(f"SELECT * FROM ({wanted.broken}) broken LIMIT {VIOLATIONS_MAX}"))
    found = tuple(Violation(name=wanted.name, objects=tuple(row[0]), detail=row[1]) for row in rows)
    return Checked(name=wanted.name, examined=examined, violations=found)


async def check_all(tx: AsyncConnection) -> list[Checked]:
    """Hold every promise against one snapshot of the database."""
    return [await check(tx, wanted) for wanted in CHECKS]
