"""What the store asked PostgreSQL, as it asked it, and how PostgreSQL goes about it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import sqlalchemy as sa

from fabric_manager.store.database import Database

Plan = dict[str, Any]


@dataclass(frozen=True)
class Statement:
    text: str
    parameters: tuple[Any, ...]


@contextmanager
def statements_of(db: Database) -> Iterator[list[Statement]]:
    """Those that run while the block does."""
    ran: list[Statement] = []

    def note(_connection: Any, _cursor: Any, text: str, parameters: Any, *_: Any) -> None:
        ran.append(Statement(text, tuple(parameters)))

    sa.event.listen(db.engine.sync_engine, "before_cursor_execute", note)
    try:
        yield ran
    finally:
        sa.event.remove(db.engine.sync_engine, "before_cursor_execute", note)


async def plan_of(connection: "asyncpg.Connection[Any]", statement: Statement, *, run: bool = False) -> Plan:
    """`run`: it is executed, and the plan tells what was read."""
    options = "ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON" if run else "FORMAT JSON"
    found = await connection.fetchval(f"EXPLAIN ({options}) {statement.text}", *statement.parameters)
    (whole,) = json.loads(found)
    plan: Plan = whole["Plan"]
    return plan


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


async def relations(db: Database, statement: Statement) -> set[str]:
    """The tables that PostgreSQL would read."""
    connection = await asyncpg.connect(db.url)
    try:
        plan = await plan_of(connection, statement)
    finally:
        await connection.close()
    return {node["Relation Name"] for node in nodes(plan) if "Relation Name" in node}
