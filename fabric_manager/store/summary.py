"""Sums from counters and from what is live; nothing here grows with history."""

# ruff: noqa: S608 (put together from constants of ours)

from collections import defaultdict
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.domain.glance import Memory, OldestOperation, PoolMemory, Summary
from fabric_manager.domain.inventory import DeviceBytes
from fabric_manager.domain.lifecycle import TERMINAL, Goal, Phase
from fabric_manager.store.inventory import filled
from fabric_manager.store.tables import LIVE, quoted

KINDS = frozenset({"allocation", "operation", "device", "pool", "fabric", "host"})
BUCKETS = (
    "capacity_bytes",
    "free_bytes",
    "allocated_bytes",
    "sanitizing_bytes",
    "quarantined_bytes",
    "withdrawn_bytes",
)
LIVE_PHASES = [phase for phase in Phase if phase not in TERMINAL]

# A pool without devices is shown too, and devices without a pool.
BYTES = f"""SELECT p.name AS pool, count(d.id) AS devices,
                   {", ".join(f"coalesce(sum(d.{bucket}), 0)::bigint AS {bucket}" for bucket in BUCKETS)}
            FROM (SELECT * FROM device WHERE admin_state <> 'retired') d FULL JOIN pool p ON p.id = d.pool_id
            GROUP BY p.name ORDER BY p.name NULLS LAST"""
PHASES = f"""SELECT p.name AS pool, s.phase, sum(s.size_bytes)::bigint AS size_bytes
             FROM (SELECT phase, device_no, sum(size_bytes) AS size_bytes FROM segment WHERE {LIVE}
                   GROUP BY phase, device_no) s
             JOIN device d ON d.number = s.device_no LEFT JOIN pool p ON p.id = d.pool_id GROUP BY p.name, s.phase"""
ALLOCATIONS = f"""SELECT phase AS label, count(*) AS number FROM allocation
                  WHERE phase IN ({quoted([*LIVE_PHASES, Phase.FAILED])}) AND NOT forgotten GROUP BY phase"""
REFUSALS = "SELECT label, sum(value)::bigint AS number FROM tally WHERE name = 'refusals' GROUP BY label"
FABRICS = "SELECT state AS label, count(*) AS number FROM fabric GROUP BY state"
HOSTS = """SELECT CASE WHEN fenced_at IS NOT NULL THEN 'fenced' WHEN boot_id IS NOT NULL THEN 'reporting'
                       ELSE 'silent' END AS label, count(*) AS number FROM host GROUP BY 1"""
DEVICES = "SELECT health AS label, count(*) AS number FROM device WHERE admin_state <> 'retired' GROUP BY health"
OPERATIONS = """SELECT state AS label, count(*) AS number FROM operation WHERE state IN ('pending', 'running')
                GROUP BY state"""
# One step into the index for each state; together they would have to be sorted.
OLDEST = " UNION ALL ".join(
    f"""(SELECT o.id, o.goal, o.allocation_id, o.reason, o.created_at FROM operation o WHERE o.state = '{state}'
         ORDER BY o.id LIMIT 1)"""
    for state in ("pending", "running")
)
OLDEST_OPERATION = f"""SELECT o.*, a.key AS allocation, floor(extract(epoch FROM now() - o.created_at))::bigint AS age_s
                       FROM ({OLDEST}) o LEFT JOIN allocation a ON a.id = o.allocation_id ORDER BY o.id LIMIT 1"""


async def counted(tx: AsyncConnection, query: str) -> Mapping[str, int]:
    return {row.label: row.number for row in await tx.execute(sa.text(f"SELECT * FROM ({query}) q ORDER BY label"))}


def added(parts: list[Memory]) -> Memory:
    by_phase: defaultdict[str, int] = defaultdict(int)
    for part in parts:
        for phase, size_bytes in part.bytes_by_phase.items():
            by_phase[phase] += size_bytes
    sums = {bucket: sum(getattr(part.bytes, bucket) for part in parts) for bucket in BUCKETS}
    return Memory(
        devices=sum(part.devices for part in parts),
        bytes=DeviceBytes(**sums),
        bytes_by_phase=dict(sorted(by_phase.items())),
    )


async def pools(tx: AsyncConnection) -> tuple[PoolMemory, ...]:
    by_phase: defaultdict[str | None, dict[str, int]] = defaultdict(dict)
    for row in await tx.execute(sa.text(PHASES)):
        by_phase[row.pool][row.phase] = row.size_bytes
    rows = (await tx.execute(sa.text(BYTES))).mappings().all()
    return tuple(
        PoolMemory(
            pool=row["pool"],
            memory=Memory(
                devices=row["devices"],
                bytes=filled(DeviceBytes, row),
                bytes_by_phase=dict(sorted(by_phase[row["pool"]].items())),
            ),
        )
        for row in rows
    )


async def read(tx: AsyncConnection) -> Summary:
    found = await pools(tx)
    oldest = (await tx.execute(sa.text(OLDEST_OPERATION))).mappings().one_or_none()
    return Summary(
        total=added([each.memory for each in found]),
        pools=found,
        allocations=await counted(tx, ALLOCATIONS),
        refusals=await counted(tx, REFUSALS),
        fabrics=await counted(tx, FABRICS),
        hosts=await counted(tx, HOSTS),
        devices=await counted(tx, DEVICES),
        operations=await counted(tx, OPERATIONS),
        oldest_operation=filled(OldestOperation, oldest, goal=Goal(oldest["goal"])) if oldest is not None else None,
    )
