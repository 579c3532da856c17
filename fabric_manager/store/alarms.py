"""Conditions that are so now and want somebody's eyes, each found by an index over what is live."""

# ruff: noqa: S608 (put together from constants of ours)

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.actor import Principal
from fabric_manager.domain.glance import Alarm, Severity
from fabric_manager.store.allocations import VISIBLE
from fabric_manager.store.events import bounds

ALARMS_MAX = 500  # of each kind
RELEASE_BLOCKED_S = 600  # a node was asked to let go this long ago
SANITIZING_S = 1800
ATTEMPTS_MANY = 10
UNKNOWN_OWNER_S = 10  # a binding that is being made or undone may be seen half done
UNOWNED_S = 30
UNNUMBERED_S = 30

C, W = Severity.CRITICAL, Severity.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`query` selects object, since and detail; `bounded` when a principal sees only what is within its bounds."""

    kind: str
    severity: Severity
    object_kind: str
    query: str
    bounded: bool = False


def phase_rule(kind: str, severity: Severity, phase: str, detail: str, *, after_s: int = 0) -> Rule:
    return Rule(
        kind=kind,
        severity=severity,
        object_kind="allocation",
        bounded=True,
        query=f"""SELECT a.key AS object, a.state_changed_at AS since, {detail} AS detail FROM allocation a
                  WHERE a.phase = '{phase}' AND NOT a.forgotten
                    AND a.state_changed_at <= now() - interval '{after_s} s' {VISIBLE}""",
    )


def device_rule(kind: str, severity: Severity, health: str, detail: str) -> Rule:
    return Rule(
        kind=kind,
        severity=severity,
        object_kind="device",
        query=f"""SELECT name AS object, state_changed_at AS since, {detail} AS detail FROM device
                  WHERE health = '{health}' AND admin_state <> 'retired'""",
    )


HELD = "format('%s bytes of it are allocated', allocated_bytes)"
WHY = "coalesce(a.failure->>'detail', 'see its timeline')"
UNFINISHED = "o.state IN ('pending', 'running')"

RULES: Sequence[Rule] = (
    Rule(
        kind="fabric_unreachable",
        severity=C,
        object_kind="fabric",
        query="""SELECT name AS object, state_changed_at AS since, coalesce(state_reason, 'does not answer') AS detail
                 FROM fabric WHERE state = 'unreachable' AND admin_state <> 'maintenance'""",
    ),
    Rule(
        kind="fabric_degraded",
        severity=W,
        object_kind="fabric",
        query="""SELECT name AS object, state_changed_at AS since, coalesce(state_reason, 'part of it fails') AS detail
                 FROM fabric WHERE state = 'degraded' AND admin_state <> 'maintenance'""",
    ),
    Rule(
        kind="fabric_unowned",
        severity=C,
        object_kind="fabric",
        query=f"""SELECT name AS object, coalesce(owned_until, created_at) AS since, 'no process drives it' AS detail
                  FROM fabric WHERE coalesce(owned_until, created_at) < now() - interval '{UNOWNED_S} s'""",
    ),
    device_rule("device_failed", C, "failed", HELD),
    device_rule("device_degraded", W, "degraded", HELD),
    device_rule("device_absent", C, "unknown", f"'hardware does not show it; ' || {HELD}"),
    phase_rule("allocation_lost", C, "lost", "'hardware no longer gives the memory to its host'"),
    phase_rule("allocation_quarantined", C, "quarantined", WHY),
    phase_rule(
        "allocation_release_blocked",
        W,
        "release_blocked",
        "'deleted, and its node has not reported it offline'",
        after_s=RELEASE_BLOCKED_S,
    ),
    phase_rule("allocation_sanitizing_long", W, "sanitizing", "'not erased yet'", after_s=SANITIZING_S),
    Rule(
        kind="operation_overdue",
        severity=W,
        object_kind="operation",
        bounded=True,
        query=f"""SELECT o.id::text AS object, o.deadline_at AS since,
                         format('%s of %s: %s', o.goal, a.key, o.reason) AS detail
                  FROM operation o JOIN allocation a ON a.id = o.allocation_id
                  WHERE {UNFINISHED} AND o.deadline_at < now() {VISIBLE}""",
    ),
    Rule(
        kind="operation_attempts",
        severity=W,
        object_kind="operation",
        bounded=True,
        query=f"""SELECT o.id::text AS object, o.created_at AS since,
                         format('%s of %s, %s attempts: %s', o.goal, a.key, o.attempts, o.reason) AS detail
                  FROM operation o JOIN allocation a ON a.id = o.allocation_id
                  WHERE {UNFINISHED} AND o.attempts >= {ATTEMPTS_MANY} {VISIBLE}""",
    ),
    Rule(
        kind="unknown_owner",
        severity=C,
        object_kind="switch",
        query=f"""SELECT w.name AS object, v.updated_at AS since,
                         format('vPPB %s of VCS %s is bound, and by no allocation', v.number, v.vcs_number) AS detail
                  FROM vppb v JOIN switch w ON w.id = v.switch_id
                  WHERE v.state IN ('bound_ld', 'bound_port')
                    AND v.updated_at < now() - interval '{UNKNOWN_OWNER_S} s' AND NOT EXISTS (
                      SELECT FROM attachment t WHERE t.live AND t.switch_id = v.switch_id
                        AND t.vcs_number = v.vcs_number AND t.vppb_number = v.number)""",
    ),
    Rule(
        kind="link_degraded",
        severity=W,
        object_kind="port",
        query="""SELECT format('%s:%s', w.name, p.number) AS object, p.updated_at AS since,
                        format('width %s of %s, %s of %s GT/s', p.link_width, p.link_width_max, p.link_speed_gt,
                               p.link_speed_gt_max) AS detail
                 FROM port p JOIN switch w ON w.id = p.switch_id
                 WHERE p.link_width > 0
                   AND (p.link_width < p.link_width_max OR p.link_speed_gt < p.link_speed_gt_max)""",
    ),
    Rule(
        kind="host_fenced",
        severity=W,
        object_kind="host",
        query="""SELECT name AS object, fenced_at AS since, coalesce(fence_reason, 'no reason on record') AS detail
                 FROM host WHERE fenced_at IS NOT NULL""",
    ),
    Rule(
        kind="events_unnumbered",
        severity=W,
        object_kind="event",
        query=f"""SELECT 'outbox' AS object, at AS since, 'no process numbers events; nobody is told' AS detail
                  FROM (SELECT at FROM event_outbox ORDER BY id LIMIT 1) e
                  WHERE at < now() - interval '{UNNUMBERED_S} s'""",
    ),
)


async def read(tx: AsyncConnection, *, seen_by: Principal) -> tuple[list[Alarm], list[str]]:
    """The alarms, oldest first within a kind, and the kinds of which there are more than are shown."""
    found: list[Alarm] = []
    truncated: list[str] = []
    for rule in RULES:
        query = f"""SELECT object, since, floor(extract(epoch FROM now() - since))::bigint AS age_s, detail
                    FROM ({rule.query}) q ORDER BY since, object LIMIT {ALARMS_MAX + 1}"""
        rows = (await tx.execute(sa.text(query), bounds(seen_by) if rule.bounded else {})).all()
        if len(rows) > ALARMS_MAX:
            truncated.append(rule.kind)
        found += [
            Alarm(
                kind=rule.kind,
                severity=rule.severity,
                object_kind=rule.object_kind,
                object=row.object,
                since=row.since,
                age_s=row.age_s,
                detail=row.detail,
            )
            for row in rows[:ALARMS_MAX]
        ]
    return found, truncated
