"""Every check holds on a database in use, and each one finds what it is there to find."""

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from fabric_manager.store import invariants
from tests.api.conftest import Api

UNGUARDED = (
    "SET LOCAL session_replication_role = replica",  # no triggers, no foreign keys
    *(
        f"ALTER TABLE {table} DROP CONSTRAINT {name}"
        for table, name in (
            ("device", "device_bytes_sum_to_capacity"),
            ("segment", "segment_bound_was_read_back"),
            ("segment", "segment_taken_only_when_offline"),
            ("segment", "segment_online_was_reported"),
            ("extent", "extent_spans_disjoint"),
        )
    ),
    "DROP INDEX segment_ld_once",
    "DROP INDEX attachment_vppb_once",
    "DROP INDEX attachment_ld_once",
    "DROP INDEX operation_unfinished_once",
)

ON_LD = "(SELECT id FROM allocation WHERE key = 'on-ld')"
COPY = "INSERT INTO {0} SELECT (r).* FROM (SELECT jsonb_populate_record(t, '{1}') AS r FROM {0} t {2} LIMIT 1) x"

# What would break each promise, were there no constraints.
BROKEN = {
    "device_bytes_add_up": "UPDATE device SET free_bytes = free_bytes + 1",
    "device_counters_equal_segments": "UPDATE device SET allocated_bytes = allocated_bytes + 1",
    "free_lds_are_unheld": "UPDATE device SET free_lds = free_lds | 1 WHERE kind = 'mld'",
    "one_live_segment_per_ld": COPY.format(
        "segment", '{"id": "00000000-0000-0000-0000-000000000001"}', "WHERE ld_id IS NOT NULL"
    ),
    "one_live_attachment_per_vppb": COPY.format("attachment", '{"id": "00000000-0000-0000-0000-000000000002"}', ""),
    "extents_are_disjoint": COPY.format("extent", '{"segment_id": "00000000-0000-0000-0000-000000000003"}', ""),
    "extents_are_inside_a_region": "UPDATE extent SET span = int8range(1::bigint << 50, (1::bigint << 50) + 2097152)",
    "extents_of_a_segment_add_up": "DELETE FROM extent WHERE number = 1;"
    "INSERT INTO extent SELECT id, 1, device_no, dpa_space, int8range(0, 2097152), 2097152 FROM segment"
    " WHERE dpa_space IS NOT NULL",
    "tenant_usage_equals_allocations": "UPDATE tenant SET used_bytes = used_bytes + 1",
    "allocation_phase_is_its_segments": f"UPDATE allocation SET phase = 'reserved' WHERE id = {ON_LD}",
    "granted_equals_segments": f"UPDATE allocation SET granted_bytes = granted_bytes + 1 WHERE id = {ON_LD}",
    "bound_was_read_back": f"UPDATE segment SET verified_at = NULL WHERE allocation_id = {ON_LD}",
    "free_after_use_has_evidence": "UPDATE segment SET phase = 'released', unbound_at = now()"
    f" WHERE allocation_id = {ON_LD}",
    "seen_by_a_host_was_unbound_first": f"UPDATE segment SET phase = 'sanitizing' WHERE allocation_id = {ON_LD}",
    "taken_only_from_a_host_that_let_go": "UPDATE segment SET phase = 'releasing', node_state = 'online'"
    f" WHERE allocation_id = {ON_LD}",
    "work_goes_on_while_the_phase_is_on_the_way": f"UPDATE allocation SET phase = 'releasing' WHERE id = {ON_LD}",
    "no_operation_is_overdue": "UPDATE operation SET state = 'running', finished_at = NULL,"
    " deadline_at = now() - interval '1 hour'",
    "events_have_no_gap": "DELETE FROM event WHERE seq = (SELECT seq - 1 FROM event_head)",
    "quarantine_tells_why": f"UPDATE allocation SET phase = 'quarantined', conditions = '[]' WHERE id = {ON_LD}",
}


@pytest.fixture
async def busy(api: Api) -> Api:
    await api.bound("on-ld", device="mld-0")
    await api.bound("on-dcd", device="dcd-0", size_bytes=1 << 30)
    await api.put("reserved")
    await api.bound("gone", device="mld-0")
    await api.http.delete("/v1/allocations/gone")
    await api.erased("gone")
    return api


async def run(tx: AsyncConnection, script: str) -> None:
    for statement in script.split(";"):
        await tx.execute(sa.text(statement.replace(":", r"\:")))


async def test_all_hold_on_a_database_in_use(busy: Api) -> None:
    body = (await busy.http.get("/v1/invariants")).json()
    assert body["violations"] == []
    assert [check["name"] for check in body["checks"]] == [check.name for check in invariants.CHECKS]


def test_every_check_has_something_that_breaks_it() -> None:
    assert set(BROKEN) == {check.name for check in invariants.CHECKS}


async def test_each_finds_what_it_is_there_to_find(busy: Api) -> None:
    for wanted in invariants.CHECKS:
        async with busy.db.engine.connect() as tx:  # rolled back at the end
            for statement in UNGUARDED:
                await run(tx, statement)
            if wanted.name == "no_operation_is_overdue":
                await run(tx, "UPDATE fabric SET state = 'up'")
            await run(tx, BROKEN[wanted.name])
            found = await invariants.check(tx, wanted)
            assert found.violations, wanted.name
            assert all(violation.objects for violation in found.violations)
            assert found.examined > 0 or wanted.name == "taken_only_from_a_host_that_let_go", wanted.name
