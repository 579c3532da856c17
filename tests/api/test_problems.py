"""Refusals: one table, and no mistake of ours without a trace."""

import logging

import httpx
import pytest
import sqlalchemy as sa

from fabric_manager.api.problems import PROBLEMS, to_problem
from fabric_manager.domain.errors import VERDICTS, Code, FabricError
from fabric_manager.telemetry.logs import Subject
from tests.api.conftest import Api

STANDARD = {"type", "title", "status", "detail", "instance", "code", "request_id", "retryable", "terminal_for"}


def test_every_code_has_a_problem() -> None:
    assert set(PROBLEMS) == set(Code) == set(VERDICTS)


def test_only_what_may_pass_by_waiting_is_a_5xx() -> None:
    assert {code for code, problem in PROBLEMS.items() if problem.status >= 500} == {
        Code.FABRIC_UNREACHABLE,
        Code.DATABASE_UNAVAILABLE,
        Code.RECOVERING,
        Code.READ_ONLY,
        Code.OVERLOADED,
    }


@pytest.mark.parametrize("code", Code)
def test_every_problem_is_complete_and_facts_do_not_hide_it(code: Code) -> None:
    body = to_problem(FabricError(code, "why", status=1, eta_ms=5), instance="/v1/x", request_id="r")
    assert set(body) >= STANDARD | {"retry_after_ms", "eta_ms"}
    assert body["status"] == PROBLEMS[code].status


def test_a_placement_refusal_is_terminal_unless_waiting_helps() -> None:
    final = to_problem(FabricError(Code.INSUFFICIENT_CAPACITY, "no"), instance="/", request_id="r")
    soon = to_problem(FabricError(Code.INSUFFICIENT_CAPACITY, "no", waiting_helps=True), instance="/", request_id="r")
    assert (final["retryable"], final["terminal_for"]) == (False, "placement")
    assert (soon["retryable"], soon["terminal_for"]) == (True, None)


NONSENSE = """
  CREATE OR REPLACE FUNCTION claim_candidates(arg jsonb) RETURNS jsonb LANGUAGE sql AS
  $$ SELECT jsonb_build_object('the secret of the house', 1) $$
"""


async def test_a_mistake_of_ours_is_a_500_with_the_request_id_and_one_log_line(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    async with api.db.transaction() as tx:  # what no migration of ours would do
        await tx.execute(sa.text(NONSENSE))
    caplog.handler.addFilter(Subject())
    with caplog.at_level(logging.ERROR):
        response = await api.http.put(
            "/v1/allocations/a", json={"tenant": "t", "size_bytes": 1}, headers={"X-Request-Id": "trace-9"}
        )
    assert response.status_code == 500, response.text
    assert response.json()["request_id"] == response.headers["x-request-id"] == "trace-9"
    assert "secret" not in response.text
    (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert record.__dict__["request_id"] == "trace-9"


async def test_every_answer_carries_the_headers_that_keep_browsers_careful(api: Api) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        for path in ("/healthz", "/v1/pools", "/docs", "/openapi.json", "/nothing"):
            headers = (await nobody.get(path)).headers
            assert "default-src 'none'" in headers["content-security-policy"], path
            assert "unsafe" not in headers["content-security-policy"], path
            assert headers["x-content-type-options"] == "nosniff", path
            assert headers["cache-control"] == "no-store", path
            assert headers["x-request-id"], path
