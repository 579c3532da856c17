"""What happened to a key, from the request to the opcode on the wire, in order of time."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.actor import Principal
from fabric_manager.domain.operation import TimelineEntry
from fabric_manager.store.events import VISIBLE, bounds

# Of each source. A story longer than this shows its latest part and says so.
ENTRIES_MAX = 2000

# Events that are not numbered yet have happened all the same.
EVENTS = f"""
  SELECT e.at, 'event' AS kind, e.type AS title, jsonb_build_object(
    'seq', e.seq, 'before', e.before, 'after', e.after, 'host', e.host, 'device', e.device, 'actor', e.actor,
    'request_id', e.request_id, 'cause', e.cause) AS facts
  FROM (SELECT seq, at, type, key, tenant, cluster, host, device, before, after, actor, request_id, cause FROM event
        WHERE key = :key
        UNION ALL
        SELECT NULL, at, type, key, tenant, cluster, host, device, before, after, actor, request_id, cause
        FROM event_outbox WHERE key = :key) e
  WHERE true {VISIBLE} ORDER BY e.at DESC, e.seq DESC NULLS FIRST LIMIT :limit
"""  # noqa: S608 (constants of ours)

OPERATIONS_OF_KEY = "SELECT o.id FROM operation o JOIN allocation a ON a.id = o.allocation_id WHERE a.key = :key"

STEPS = f"""
  SELECT t.intended_at AS at, 'step' AS kind, t.step AS title, jsonb_build_object(
    'operation', t.operation_id, 'number', t.number, 'segment', t.segment_id, 'component', t.component,
    'intent', t.intent, 'outcome', t.outcome, 'observed', t.observed, 'epoch', t.epoch,
    'finished_at', t.finished_at) AS facts
  FROM operation_step t WHERE t.operation_id IN ({OPERATIONS_OF_KEY})
  ORDER BY t.intended_at DESC, t.operation_id DESC, t.number DESC LIMIT :limit
"""  # noqa: S608

EVIDENCE = """
  SELECT v.ended_at AS at, 'evidence' AS kind, v.method AS title, jsonb_build_object(
    'id', v.id, 'segment', v.segment_id, 'device', d.name, 'device_serial', v.device_serial,
    'operation', v.operation_id, 'size_bytes', v.size_bytes, 'started_at', v.started_at, 'ended_at', v.ended_at,
    'read_back', v.read_back) AS facts
  FROM evidence v JOIN device d ON d.number = v.device_no JOIN segment s ON s.id = v.segment_id
  JOIN allocation a ON a.id = s.allocation_id
  WHERE a.key = :key ORDER BY v.ended_at DESC, v.id DESC LIMIT :limit
"""

FRAMES = f"""
  SELECT f.sent_at AS at, 'frame' AS kind, f.command AS title, jsonb_build_object(
    'id', f.id, 'operation', f.operation_id, 'endpoint', f.endpoint, 'component', f.component, 'opcode', f.opcode,
    'request', f.request, 'response', f.response, 'request_raw', encode(f.request_raw, 'hex'),
    'response_raw', encode(f.response_raw, 'hex'), 'return_code', f.return_code, 'answered_at', f.answered_at) AS facts
  FROM frame f WHERE f.operation_id IN ({OPERATIONS_OF_KEY}) ORDER BY f.id DESC LIMIT :limit
"""  # noqa: S608

# At one instant the cause stands before its consequence.
SOURCES = (("step", STEPS), ("frame", FRAMES), ("evidence", EVIDENCE), ("event", EVENTS))
RANK = {kind: rank for rank, (kind, _) in enumerate(SOURCES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    entries: tuple[TimelineEntry, ...]
    truncated: bool


async def of_key(tx: AsyncConnection, key: str, *, seen_by: Principal, events_only: bool = False) -> Timeline:
    """The story of `key`, also one that was only ever refused. No entries: nothing is known of it.

    `events_only` is for who may not see the allocation: its own refused requests are all it gets.
    """
    entries: list[TimelineEntry] = []
    truncated = False
    for kind, query in SOURCES:
        if events_only and kind != "event":
            continue
        facts = {"key": key, "limit": ENTRIES_MAX}
        if kind == "event":
            facts |= bounds(seen_by)
        rows = (await tx.execute(sa.text(query), facts)).all()
        truncated = truncated or len(rows) == ENTRIES_MAX
        entries += [TimelineEntry(at=r.at, kind=r.kind, title=r.title, facts=r.facts) for r in reversed(rows)]
    entries.sort(key=lambda entry: (entry.at, RANK[entry.kind]))
    return Timeline(entries=tuple(entries), truncated=truncated)
