"""The database holds copies of domain/lifecycle.py, because it guards itself. They agree."""

import re

import sqlalchemy as sa

from fabric_manager.domain.lifecycle import LIFECYCLE, PRECEDENCE, TERMINAL, Goal, Phase, bucket
from fabric_manager.domain.operation import UNFINISHED
from fabric_manager.store.database import Database


async def test_the_table_of_transitions(db: Database) -> None:
    async with db.snapshot() as tx:
        rows = await tx.execute(sa.text("SELECT phase, event, next_phase FROM lifecycle_transition"))
        assert {(row.phase, row.event): row.next_phase for row in rows} == LIFECYCLE


async def test_the_buckets(db: Database) -> None:
    async with db.snapshot() as tx:
        rows = await tx.execute(
            sa.text("SELECT p, bucket(p) FROM unnest(cast(:phases AS text[])) p"),
            {"phases": [str(phase) for phase in Phase]},
        )
        assert {row[0]: row[1] for row in rows} == {phase: bucket(phase) for phase in Phase}


async def source_of(db: Database, function: str) -> str:
    async with db.snapshot() as tx:
        found = await tx.execute(sa.text("SELECT prosrc FROM pg_proc WHERE proname = :name"), {"name": function})
        return str(found.scalar_one())


async def test_the_order_of_urgency(db: Database) -> None:
    (array,) = re.findall(r"ARRAY\[([^\]]*)\]", await source_of(db, "refresh_allocation"))
    assert tuple(re.findall(r"'(\w+)'", array)) == PRECEDENCE


async def test_what_the_indexes_call_live_and_unfinished(db: Database) -> None:
    query = """SELECT indexrelid::regclass::text AS name, pg_get_expr(indpred, indrelid) AS predicate FROM pg_index
               WHERE indrelid::regclass::text IN ('segment', 'allocation', 'operation')
                 AND pg_get_expr(indpred, indrelid) ~ '\\m(phase|state)\\M'"""
    async with db.snapshot() as tx:
        rows = (await tx.execute(sa.text(query))).all()
    words = {row.name: set(re.findall(r"'(\w+)'", row.predicate)) for row in rows}
    assert words.pop("allocation_reservation_expiry") == {Phase.RESERVED}
    assert {"segment_ld_once", "segment_live_device", "allocation_live_host", "operation_unfinished_once"} <= set(words)
    for name, said in words.items():
        assert said == {str(word) for word in (UNFINISHED if name.startswith("operation") else TERMINAL)}, name


async def test_every_goal_ends(db: Database) -> None:
    """Where each goal's operation ends, and how; in every other phase it goes on."""
    query = "SELECT g, p, operation_end(g, p) FROM unnest(cast(:goals AS text[])) g, unnest(cast(:phases AS text[])) p"
    facts = {"goals": [str(goal) for goal in Goal], "phases": [str(phase) for phase in Phase]}
    async with db.snapshot() as tx:
        rows = (await tx.execute(sa.text(query), facts)).all()
    ends = {(goal, phase): end for goal, phase, end in rows if end is not None}
    always = {(goal, Phase.QUARANTINED): "quarantined" for goal in Goal} | {
        (goal, Phase.RELEASED): "done" for goal in Goal
    }
    assert ends == always | {
        (Goal.BIND, Phase.BOUND): "done",
        (Goal.BIND, Phase.ONLINE): "done",
        (Goal.BIND, Phase.FAILED): "failed",
        (Goal.BIND, Phase.LOST): "failed",
        (Goal.UNDO, Phase.FAILED): "done",
        (Goal.UNBIND, Phase.RESERVED): "done",
    }
