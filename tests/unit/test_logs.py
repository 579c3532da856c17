"""What lines carry: the fields of the work they were logged in, and of its tasks, and no others."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from fabric_manager.telemetry.logs import JsonLines, Subject, TextLines, about, note

log = logging.getLogger("test of logs")


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.addFilter(Subject())
        self.setFormatter(JsonLines())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    handler = Lines()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler.lines
    log.removeHandler(handler)


async def test_lines_of_a_task_carry_what_the_work_around_it_is_about(lines: list[dict[str, Any]]) -> None:
    async def inner() -> None:
        note(key="k")
        log.info("inside", extra={"size_bytes": 5})

    with about(request_id="r", actor=None):
        await asyncio.create_task(inner())
        log.info("around")
    log.info("outside")
    inside, around, outside = lines
    assert (inside["request_id"], inside["key"], inside["size_bytes"]) == ("r", "k", 5)
    assert "actor" not in inside
    assert around["request_id"] == "r"
    assert "key" not in around
    assert "request_id" not in outside


async def test_tasks_side_by_side_do_not_mix(lines: list[dict[str, Any]]) -> None:
    async def work(key: str) -> None:
        with about(key=key):
            await asyncio.sleep(0)
            log.info(key)

    await asyncio.gather(*(work(f"k-{number}") for number in range(20)))
    assert len(lines) == 20
    assert all(line["key"] == line["message"] for line in lines)


def test_what_the_line_says_itself_goes_first(lines: list[dict[str, Any]]) -> None:
    with about(key="a"):
        log.info("it", extra={"key": "b"})
    assert lines[0]["key"] == "b"


def test_text_has_the_same_facts_for_eyes() -> None:
    record = logging.makeLogRecord({"msg": "step done", "levelname": "INFO", "key": "k", "attempts": 2})
    assert TextLines().format(record).endswith("INFO step done key=k attempts=2")
