"""What a scrape reads: counters, and what is unfinished. Nothing here grows with history."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.telemetry import metrics
from fabric_manager.telemetry.metrics import Reading, Sample

BUCKETS = ("free", "allocated", "sanitizing", "quarantined", "withdrawn")
FABRIC_STATES = ("up", "degraded", "unreachable")
WAITING_MAX = 100_000  # events counted at most

BYTES = """SELECT coalesce(p.name, '') AS pool, sum(free_bytes) AS free, sum(allocated_bytes) AS allocated,
                  sum(sanitizing_bytes) AS sanitizing, sum(quarantined_bytes) AS quarantined,
                  sum(withdrawn_bytes) AS withdrawn
           FROM device d LEFT JOIN pool p ON p.id = d.pool_id GROUP BY 1"""
UNFINISHED = """SELECT goal, state, count(*) AS number, extract(epoch FROM now() - min(created_at)) AS age_s
                FROM operation WHERE state IN ('pending', 'running') GROUP BY goal, state"""
EVENTS = """SELECT (SELECT seq FROM event_head) AS head,
                    (SELECT count(*) FROM (SELECT FROM event_outbox LIMIT :waiting_max) o) AS waiting,
                    (SELECT extract(epoch FROM now() - at) FROM event_outbox ORDER BY id LIMIT 1) AS age_s"""
FABRICS = "SELECT name, state, extract(epoch FROM now() - scanned_at) AS age_s FROM fabric"


async def readings(tx: AsyncConnection) -> Mapping[Reading, Sequence[Sample]]:
    """All that the database knows, as of one snapshot."""
    return {**await memory(tx), **await operations(tx), **await events(tx), **await fabrics(tx)}


async def memory(tx: AsyncConnection) -> Mapping[Reading, Sequence[Sample]]:
    pools = (await tx.execute(sa.text(BYTES))).mappings().all()
    return {metrics.MEMORY_BYTES: [((row["pool"], bucket), float(row[bucket])) for row in pools for bucket in BUCKETS]}


async def operations(tx: AsyncConnection) -> Mapping[Reading, Sequence[Sample]]:
    rows = (await tx.execute(sa.text(UNFINISHED))).mappings().all()
    oldest: dict[str, float] = {}
    for row in rows:
        oldest[row["goal"]] = max(oldest.get(row["goal"], 0.0), float(row["age_s"]))
    return {
        metrics.OPERATIONS: [((row["goal"], row["state"]), row["number"]) for row in rows],
        metrics.OPERATION_OLDEST_SECONDS: [((goal,), age_s) for goal, age_s in oldest.items()],
    }


async def events(tx: AsyncConnection) -> Mapping[Reading, Sequence[Sample]]:
    row = (await tx.execute(sa.text(EVENTS), {"waiting_max": WAITING_MAX})).mappings().one()
    return {
        metrics.EVENTS: [((), row["head"] or 0)],
        metrics.EVENTS_WAITING: [((), row["waiting"])],
        metrics.EVENTS_WAITING_SECONDS: [((), max(0.0, float(row["age_s"] or 0)))],
    }


async def fabrics(tx: AsyncConnection) -> Mapping[Reading, Sequence[Sample]]:
    rows = (await tx.execute(sa.text(FABRICS))).mappings().all()
    return {
        metrics.FABRIC_STATE: [
            ((row["name"], state), float(row["state"] == state)) for row in rows for state in FABRIC_STATES
        ],
        metrics.FABRIC_SCAN_SECONDS: [
            ((row["name"],), float(row["age_s"])) for row in rows if row["age_s"] is not None
        ],
    }
