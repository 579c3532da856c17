"""With 100,000 allocations and 1,000,000 events behind it, every read still finds its rows by an index.

Not by the clock: by the plans of the very statements, and by how many blocks they touch.
"""

import re
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa

from fabric_manager.api.application import openapi_document
from fabric_manager.domain.lifecycle import Phase
from tests.api.conftest import Api
from tests.api.statements import Plan, Statement, nodes, plan_of, statements_of

ALLOCATIONS, EVENTS, EVENTS_A_PARTITION = 100_000, 1_000_000, 250_000
DEVICES, HOSTS, VPPBS, KEPT, LIVE_EVERY = 2_000, 200, 16, 5_000, 40
GROWS = {
    "allocation",
    "allocation_key",
    "attachment",
    "event",
    "evidence",
    "extent",
    "frame",
    "operation",
    "operation_step",
    "segment",
}
LIMIT = 10
TINY_ROWS = 50
# A block is 8 KiB. The biggest single page here shows ten allocations, each put together from eight tables.
PAGE_BLOCKS_MAX = 3_000
# These read all of the inventory and of what is live, whose size is that of the rack.
WHOLE = {"/v1/summary", "/v1/topology", "/v1/alarms", "/v1/pools", "/v1/vcs", "/v1/ports", "/v1/switches"}
WHOLE_BLOCKS_MAX = 60_000

ID = "(lpad(to_hex({at}), 12, '0') || '7000' || '8000' || lpad(to_hex({kind} * 1000000 + i), 12, '0'))::uuid"
AT = "1767225600000 + i * 1000"  # a second apart, in ms


def uid(kind: int) -> str:
    return ID.format(at=AT, kind=kind)


# One in forty is live; of the others the newest are released and remembered, the rest are history.
LIVE_PHASES = (
    "ARRAY['reserved','binding','bound','online','release_blocked','releasing','sanitizing','lost','quarantined']"
)
FILL = f"""
SET session_replication_role = replica;
SET synchronous_commit = off;
CREATE TEMP TABLE plan AS
SELECT i, i / {LIVE_EVERY} AS n, {uid(1)} AS allocation_id, {uid(2)} AS segment_id, {uid(3)} AS attachment_id,
       i % {LIVE_EVERY} = 0 AS live, i <= {ALLOCATIONS - KEPT} AND i % {LIVE_EVERY} <> 0 AS forgotten,
       CASE WHEN i % {LIVE_EVERY} <> 0 AND i > {ALLOCATIONS - KEPT} AND i % 500 = 1 THEN 'failed'
            WHEN i % {LIVE_EVERY} <> 0 THEN 'released'
            WHEN i % ({LIVE_EVERY} * 50) = 0 THEN ({LIVE_PHASES})[1 + (i / {LIVE_EVERY} / 50) % 9]
            ELSE 'bound' END AS phase
FROM generate_series(1, {ALLOCATIONS}) i;

INSERT INTO pool (id, name, kind) SELECT {uid(9)}, 'pool-' || i, CASE i % 2 WHEN 0 THEN 'mld' ELSE 'dcd' END
FROM generate_series(1, 8) i;
INSERT INTO tenant (id, name) SELECT {uid(8)}, 'tenant-' || i FROM generate_series(1, 5) i;
INSERT INTO host (id, name, cluster) SELECT {uid(7)}, 'host-' || i, 'cluster-' || i % 4
FROM generate_series(1, {HOSTS}) i;
INSERT INTO host_port (switch_name, port_number, host_id) SELECT 'sw-0', i, {uid(7)} FROM generate_series(1, {HOSTS}) i
ON CONFLICT DO NOTHING;
INSERT INTO device (id, name, fabric_id, switch_id, port_number, serial, kind, pool_id, capacity_bytes, free_bytes,
                    health, capabilities)
SELECT {uid(6)}, 'device-' || i, f.id, w.id, 64, 'serial-' || i, CASE (1 + i % 8) % 2 WHEN 0 THEN 'mld' ELSE 'dcd' END,
       (SELECT id FROM pool WHERE name = 'pool-' || 1 + i % 8), 1 << 30, 1 << 30,
       CASE i % 500 WHEN 1 THEN 'failed' WHEN 2 THEN 'degraded' ELSE 'ok' END, '{{sanitize_ld}}'
FROM generate_series(1, {DEVICES}) i, fabric f, switch w;
INSERT INTO logical_device (device_no, ld_id, id, size_bytes)
SELECT d.number, l, md5(d.number || '/' || l)::uuid, 1 << 28 FROM device d, generate_series(0, 3) l
ON CONFLICT DO NOTHING;
INSERT INTO vcs (id, switch_id, number, upstream_port)
SELECT {uid(5)}, w.id, i, i FROM generate_series(1, {HOSTS}) i, switch w ON CONFLICT DO NOTHING;
INSERT INTO vppb (switch_id, vcs_number, number, state)
SELECT w.id, v, p, 'free' FROM generate_series(1, {HOSTS}) v, generate_series(0, {VPPBS - 1}) p, switch w
ON CONFLICT DO NOTHING;

INSERT INTO allocation_key (key, expires_at)
SELECT 'key-' || i, CASE WHEN phase = 'released' AND NOT forgotten THEN now() + interval '1 day' END FROM plan;
INSERT INTO allocation (id, key, forgotten, tenant_id, consumer_kind, cluster, claim_uid, request, size_bytes,
                        granted_bytes, pool_id, host_id, qos_class, isolation, phase, conditions, created_at,
                        finished_at)
SELECT p.allocation_id, 'key-' || p.i, p.forgotten, t.id, CASE p.i % 3 WHEN 0 THEN 'Pod' ELSE 'ResourceClaim' END,
       'cluster-' || p.n % 4, 'uid-' || p.i, '{{}}', 1 << 28, 1 << 28, l.id, h.id, 'standard', 'shared', p.phase, '[]',
       now() - make_interval(secs => {ALLOCATIONS} - p.i), CASE WHEN NOT p.live THEN now() END
FROM plan p JOIN tenant t ON t.name = 'tenant-' || 1 + p.n % 5 JOIN pool l ON l.name = 'pool-' || 1 + p.n % 8
JOIN host h ON h.name = 'host-' || 1 + p.n % {HOSTS};
INSERT INTO attachment (id, host_id, device_no, kind, switch_id, vcs_number, vppb_number, port_number, ld_id, live,
                        state)
SELECT p.attachment_id, h.id, 3 + p.n % {DEVICES}, 'mld', w.id, 1 + p.n % {HOSTS}, p.n / {HOSTS}, 64, p.n / {DEVICES},
       p.live AND p.phase NOT IN ('reserved', 'sanitizing'),
       CASE WHEN p.live THEN 'bound' ELSE 'gone' END
FROM plan p JOIN host h ON h.name = 'host-' || 1 + p.n % {HOSTS} CROSS JOIN switch w;
INSERT INTO segment (id, allocation_id, device_no, ld_id, size_bytes, phase, attachment_id, verified_at, forgotten,
                     node_state)
SELECT segment_id, allocation_id, 3 + n % {DEVICES}, n / {DEVICES}, 1 << 28, phase,
       CASE WHEN live THEN attachment_id END, now(), forgotten,
       CASE WHEN phase IN ('online', 'release_blocked') THEN 'online' END
FROM plan;
INSERT INTO extent (segment_id, number, device_no, dpa_space, span, block_bytes)
SELECT segment_id, 0, 3 + n % {DEVICES}, 0,
       int8range((n / {DEVICES})::bigint << 28, (n / {DEVICES} + 1)::bigint << 28), 1 << 21
FROM plan WHERE live AND phase IN ('bound', 'online');
INSERT INTO operation (id, goal, state, allocation_id, fabric_id, actor, finished_at)
SELECT {uid(4)}, 'bind', 'done', allocation_id, f.id, 'test', now() FROM plan, fabric f;
INSERT INTO operation (id, goal, state, allocation_id, fabric_id, actor, finished_at)
SELECT {ID.format(at=AT, kind=10)}, 'release',
       CASE WHEN phase IN ('releasing', 'release_blocked', 'sanitizing') THEN 'running' ELSE 'done' END,
       allocation_id, f.id, 'test',
       CASE WHEN phase NOT IN ('releasing', 'release_blocked', 'sanitizing') THEN now() END
FROM plan, fabric f;
"""
# Indexes are built once the rows are there, which is what ATTACH does.
EVENT_PARTITION = """
CREATE TABLE event_{n} (LIKE event INCLUDING DEFAULTS);
INSERT INTO event_{n} (seq, at, type, object_kind, object_id, key, claim_uid, cluster, tenant, host, device, pool,
                       actor)
SELECT i, now() - make_interval(secs => {total} - i), 'allocation.bound',
       CASE i % 1000 WHEN 0 THEN 'device' WHEN 1 THEN 'fabric' ELSE 'allocation' END, 'o-' || i % {allocations},
       'key-' || i % {allocations}, 'uid-' || i % {allocations}, 'cluster-' || i % 4, 'tenant-' || 1 + i % 5,
       'host-' || 1 + i % {hosts}, 'device-' || 1 + i % {devices}, 'pool-' || 1 + i % 8, 'test'
FROM generate_series({first}, {last}) i;
ALTER TABLE event ATTACH PARTITION event_{n} FOR VALUES FROM ({start}) TO ({end});
"""

VALUES: dict[str, list[Any]] = {
    "tenant": ["tenant-3"],
    "cluster": ["cluster-2"],
    "claim_uid": ["uid-40000", "uid-41"],
    "host": ["host-41", "host-1"],
    "pool": ["pool-2"],
    "device": ["device-7", "device-1999"],
    "name": ["device-7"],
    "fabric": ["rack-0"],
    "switch": ["sw-0"],
    "allocation": ["key-40000", "key-99999"],
    "key": ["key-40000"],
    "consumer_kind": ["Pod"],
    "older_than_s": [0, 3600, 90_000],
    "type": ["allocation.bound", "fabric.up"],
    "since": [0, EVENTS // 2, EVENTS - 5],
    "kind": ["mld"],
}
EVENT_KINDS = ["allocation", "device"]
PHASES = [str(phase) for phase in Phase]
NOT_FILTERS = {"limit", "cursor", "wait", "Last-Event-ID"}


DOCUMENT = openapi_document()


def questions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every read of several things, with each filter, each word of a filter that has few, and each sort."""
    for path, methods in DOCUMENT["paths"].items():
        if "get" not in methods or "{" in path or not path.startswith("/v1/"):
            continue
        parameters = {p["name"]: p["schema"] for p in methods["get"].get("parameters", []) if p["in"] == "query"}
        if "limit" not in parameters and path not in WHOLE:
            continue
        limit = {"limit": LIMIT} if "limit" in parameters else {}
        yield path, limit
        for name, schema in parameters.items():
            if name not in NOT_FILTERS:
                yield from ((path, {**limit, name: value}) for value in values(path, name, schema))


def values(path: str, name: str, schema: dict[str, Any]) -> list[Any]:
    if path == "/v1/events" and name == "kind":
        return EVENT_KINDS
    if name == "phase" and path == "/v1/allocations":
        return [*PHASES, ["lost", "quarantined"]]
    named = DOCUMENT["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], schema)
    return list(named.get("enum") or VALUES[name])


def test_every_filter_has_values_here() -> None:
    assert len(list(questions())) > 80


async def fill(api: Api) -> None:
    connection = await asyncpg.connect(api.db.url)
    try:
        await connection.execute(FILL)
        await connection.execute(f"UPDATE event_head SET partition_rows = {EVENTS_A_PARTITION}")
        await connection.execute("ALTER TABLE event DISABLE TRIGGER USER; DROP TABLE IF EXISTS event_0")
        for n in range(EVENTS // EVENTS_A_PARTITION + 1):
            start, end = n * EVENTS_A_PARTITION, (n + 1) * EVENTS_A_PARTITION
            first, last = max(start, 1), min(end - 1, EVENTS)
            await connection.execute(
                EVENT_PARTITION.format(
                    n=n,
                    start=start,
                    end=end,
                    first=first,
                    last=last,
                    total=EVENTS,
                    allocations=ALLOCATIONS,
                    hosts=HOSTS,
                    devices=DEVICES,
                )
            )
        await connection.execute(f"UPDATE event_head SET seq = {EVENTS}, oldest_seq = 1")
        for table in ("allocation", "segment", "operation", "attachment", "allocation_key", "device", "event", ""):
            await connection.execute(f"ANALYZE {table}" if table in ("event", "") else f"VACUUM ANALYZE {table}")
    finally:
        await connection.close()


@pytest.fixture
async def full(api: Api) -> Api:
    await fill(api)
    return api


def walks_through_what_grows(plan: Plan) -> list[str]:
    """Sequential scans over a table that grows with use, unless there is nearly nothing in it."""
    scans = [
        node["Relation Name"]
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node["Plan Rows"] + node.get("Rows Removed by Filter", 0) > TINY_ROWS
    ]
    return [name for name in scans if name in GROWS or re.fullmatch(r"event_\d+", name)]


def blocks(plan: Plan) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


async def test_every_read_uses_an_index_and_history_does_not_weigh(full: Api) -> None:
    wrong: list[str] = []
    connection = await asyncpg.connect(full.db.url)
    try:
        for path, query in questions():
            asked = f"{path} {query}"
            for statement in await ran_for(full, path, query, asked):
                plan = await plan_of(connection, statement, run=True)
                scanned = walks_through_what_grows(plan)
                most = WHOLE_BLOCKS_MAX if path in WHOLE else PAGE_BLOCKS_MAX
                if scanned or blocks(plan) > most:
                    wrong.append(f"{asked}: {scanned} {blocks(plan)} blocks: {statement.text}")
    finally:
        await connection.close()
    assert not wrong, "\n\n".join(wrong)
    assert not await scanned_inside_functions(full) & GROWS


async def ran_for(api: Api, path: str, query: dict[str, Any], asked: str) -> list[Statement]:
    """What this page and the one behind it ran."""
    with statements_of(api.db) as ran:
        page = await api.http.get(path, params=query)
        assert page.status_code == 200, (asked, page.text)
        cursor = page.json().get("next_cursor")
        if cursor is not None:
            assert (await api.http.get(path, params={**query, "cursor": cursor})).status_code == 200, asked
    return [each for each in ran if each.text.lstrip().upper().startswith(("SELECT", "WITH"))]


async def scanned_inside_functions(api: Api) -> set[str]:
    """What runs inside database functions shows in no plan, but in the server's counts."""
    counts = sa.text("SELECT relname, seq_scan FROM pg_stat_xact_user_tables WHERE seq_scan > 0")
    async with api.db.transaction() as tx:
        await tx.execute(sa.text("SELECT allocation_document(a) FROM allocation a WHERE phase = 'bound' LIMIT 50"))
        await tx.execute(sa.text("SELECT publishable_bytes(d, 'cluster-1') FROM device d ORDER BY name LIMIT 100"))
        return {row.relname for row in await tx.execute(counts)}
