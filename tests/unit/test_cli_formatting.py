"""What people and scripts read."""

from datetime import UTC, datetime, timedelta

import pytest

from fabric_manager.cli import columns, formatting
from fabric_manager.client import NOUNS
from tests.unit.test_client_calls import GIB, an_allocation

NOW = datetime(2026, 3, 1, 4, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (172800, "2d")]
)
def test_an_age_is_one_number_and_one_unit(seconds: int, text: str) -> None:
    assert formatting.age(NOW - timedelta(seconds=seconds), NOW) == text


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("free_bytes", 64 * GIB, "64 GiB"),
        ("free_bytes", None, "-"),
        ("ld_id", 0, "0"),
        ("reason", "", "-"),
        ("dirty", False, "no"),
        ("objects", ["mld-0"], '["mld-0"]'),
    ],
)
def test_a_fact_reads_by_what_it_is(name: str, content: object, text: str) -> None:
    assert formatting.value(name, content) == text


def test_facts_stay_on_one_line() -> None:
    assert len(formatting.facts({"detail": "x" * 500})) == formatting.FACTS_LENGTH_MAX


def test_every_noun_has_columns() -> None:
    assert set(columns.COLUMNS) == set(NOUNS)


def test_an_allocations_row_names_its_logical_devices_and_plain_devices() -> None:
    segments = [{"device": "mld-0", "logical_device": 3}, {"device": "dcd-1", "logical_device": None}]
    text = columns.rows("allocations", [an_allocation(segments=segments)], NOW)
    headers, row = text.splitlines()
    assert headers.split() == ["KEY", "PHASE", "SIZE", "POOL", "DEVICE", "HOST", "TENANT", "AGE"]
    assert "mld-0/3, dcd-1" in row
    assert "64 GiB" in row
    assert row.endswith("47m")


@pytest.mark.parametrize("noun", [noun for noun in NOUNS if noun != "allocations"])
def test_a_field_that_a_service_leaves_out_is_a_dash(noun: str) -> None:
    text = columns.rows(noun, [{"created_at": NOW.isoformat()}], NOW)
    assert "-" in text.splitlines()[1]


def test_scripts_get_names_or_documents() -> None:
    documents = [{"key": "k", "id": "1"}, {"name": "mld-0", "id": "2"}, {"id": "3"}]
    assert formatting.scripted(documents, "name") == "k\nmld-0\n3"
    assert formatting.scripted(documents[1], "yaml") == "name: mld-0\nid: '2'"
    assert formatting.scripted([], "json") == "[]"
