"""The commands against a real HTTP server: what they ask, what they print, how they end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fabric_manager.cli import COMMANDS, main
from tests.unit.test_client_calls import (
    GIB,
    NOW,
    Answer,
    ScriptedService,
    a_list,
    a_problem,
    a_service,
    a_timeline,
    an_allocation,
    an_event_page,
    nobody_listens,
)

ALLOCATE = ("allocate", "--key", "k", "--tenant", "analytics", "--size", "64GiB")


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with a_service() as running:
        yield running


def run(service: ScriptedService | str, *arguments: str, token: str | None = "secret") -> Result:
    server = service if isinstance(service, str) else service.url
    environment = {"FABRIC_MANAGER_SERVER": server, "FABRIC_MANAGER_TOKEN": token, "FABRIC_MANAGER_DATA_DIR": None}
    return CliRunner().invoke(main, arguments, env=environment, prog_name="fabric-manager")


@pytest.mark.parametrize("command", [each.name for each in COMMANDS])
def test_every_command_explains_itself(command: str) -> None:
    result = run("http://127.0.0.1:1", command, "--help")
    assert result.exit_code == 0
    assert f"Usage: fabric-manager {command}" in result.stdout


def test_help_documents_the_exit_codes() -> None:
    text = run("http://127.0.0.1:1", "--help").stdout
    assert "0  done" in text
    assert "3  the service cannot be reached" in text


@pytest.mark.parametrize("size", ["64GB", "64G", "64", "1.5GiB", ""])
def test_an_ambiguous_size_is_refused_before_anything_is_asked(service: ScriptedService, size: str) -> None:
    result = run(service, *ALLOCATE[:-1], size)
    assert result.exit_code == 2
    assert "write a whole number and one of TiB, GiB, MiB, KiB, B, like 64GiB" in " ".join(result.stderr.split())
    assert service.asked == []


def test_allocate_asks_for_what_was_said_and_shows_the_row(service: ScriptedService) -> None:
    service.on("PUT /v1/allocations/k", Answer(status=201, body=an_allocation()))
    result = run(service, *ALLOCATE, "--pool", "fast", "--host", "node-3", "--wait", "5", "--label", "team=ml")
    assert result.exit_code == 0, result.stderr
    assert service.asked[0].body == {
        "tenant": "analytics",
        "size_bytes": 64 * GIB,
        "host": "node-3",
        "pool": "fast",
        "labels": {"team": "ml"},
    }
    assert "64 GiB" in result.stdout


def test_allocate_without_a_key_lets_the_service_make_one(service: ScriptedService) -> None:
    service.on("POST /v1/allocations", Answer(status=201, body=an_allocation()))
    result = run(service, "allocate", "--tenant", "analytics", "--size", "64GiB")
    assert result.exit_code == 0, result.stderr
    assert service.asked[0].headers["Idempotency-Key"]
    assert "64 GiB" in result.stdout


@pytest.mark.parametrize("phase", ["binding", "failed", "quarantined"])
def test_allocate_that_waited_in_vain_says_so_and_fails(service: ScriptedService, phase: str) -> None:
    service.on("PUT /v1/allocations/k", Answer(status=201, body=an_allocation(phase=phase)))
    result = run(service, *ALLOCATE, "--host", "node-3", "--wait", "1")
    assert result.exit_code == 1
    assert f"k is {phase}" in result.stderr


def test_a_failed_binding_is_told_with_its_reason(service: ScriptedService) -> None:
    failure = {"code": "deadline_exceeded", "retryable": False, "terminal_for": "placement", "detail": "300 s over"}
    service.on("PUT /v1/allocations/k", Answer(body=an_allocation(phase="failed", failure=failure)))
    result = run(service, *ALLOCATE)
    assert result.exit_code == 1
    assert result.stderr == "k is failed: deadline_exceeded\n  300 s over\n"


def test_allocate_waits_longer_than_the_service_holds_an_answer(service: ScriptedService) -> None:
    service.on("PUT /v1/allocations/k", Answer(status=201, body=an_allocation(phase="binding")))
    service.on("GET /v1/allocations/k", Answer(body=an_allocation(phase="bound")))
    assert run(service, *ALLOCATE, "--host", "node-3", "--wait", "60").exit_code == 0


def test_a_pool_and_a_device_are_not_both_named(service: ScriptedService) -> None:
    assert run(service, *ALLOCATE, "--pool", "p", "--device", "d").exit_code == 2


def test_a_refusal_shows_facts_funnel_and_what_to_do_next(service: ScriptedService) -> None:
    funnel = [{"filter": "known", "removed": 0, "left": 6}, {"filter": "space", "removed": 6, "left": 0}]
    members = {"terminal_for": "placement", "funnel": funnel, "largest_fit_bytes": 32 * GIB, "waiting_helps": False}
    service.on("PUT /v1/allocations/k", a_problem("insufficient_capacity", 409, request_id="r-1", **members))
    result = run(service, *ALLOCATE)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "Error: insufficient_capacity (409)",
        "  insufficient_capacity, in words",
        "  funnel:",
        "    filter    removed    left",
        "    known     0          6",
        "    space     6          0",
        "  largest_fit_bytes: 32 GiB",
        "  Asking again unchanged will not help; another size, pool, device or host may.",
        "  request id: r-1",
    ]


@pytest.mark.parametrize(
    ("code", "members", "sentence"),
    [
        (
            "insufficient_capacity",
            {"retryable": True, "waiting_helps": True, "eta_ms": 12000},
            "Waiting helps: about 12 s.",
        ),
        ("switch_busy", {"retryable": True, "retry_after_ms": 2000}, "Try again in 2 s."),
        ("fenced", {"terminal_for": "host"}, "another host may"),
        ("key_reuse_mismatch", {"terminal_for": "claim"}, "use another key"),
        ("quota_exceeded", {"terminal_for": "claim"}, "cannot succeed"),
    ],
)
def test_each_refusal_says_what_to_do_next(
    service: ScriptedService, code: str, members: dict[str, object], sentence: str
) -> None:
    service.on("PUT /v1/allocations/k", a_problem(code, 409, **members))
    assert sentence in run(service, *ALLOCATE).stderr


def test_exit_codes_tell_scripts_what_happened(service: ScriptedService) -> None:
    service.on("GET /v1/devices", a_problem("unauthenticated", 401))
    assert run(service, "get", "devices", "mld-9").exit_code == 4
    assert run(service, "get", "devices").exit_code == 1
    assert run(service, "get", "unicorns").exit_code == 2
    assert run(nobody_listens(), "get", "devices").exit_code == 3


def test_a_token_comes_from_a_file_the_environment_or_the_data_directory(
    service: ScriptedService, tmp_path: Path
) -> None:
    service.on("GET /v1/pools", a_list())
    (tmp_path / "admin.token").write_text("of the data directory\n")
    (tmp_path / "mine").write_text("of a file\n")
    data_dir = ("--data-dir", str(tmp_path))
    run(service, "get", "pools", *data_dir, "--token-file", str(tmp_path / "mine"))
    run(service, "get", "pools", *data_dir, token="of the environment")
    run(service, "get", "pools", *data_dir, token=None)
    sent = [each.headers["Authorization"].removeprefix("Bearer ") for each in service.asked]
    assert sent == ["of a file", "of the environment", "of the data directory"]


def test_no_token_is_a_sentence_and_nothing_is_asked(service: ScriptedService, tmp_path: Path) -> None:
    result = run(service, "get", "pools", "--data-dir", str(tmp_path), token=None)
    assert result.exit_code == 2
    assert "No such file" in result.stderr
    assert "FABRIC_MANAGER_TOKEN" in result.stderr
    assert service.asked == []


def test_get_filters_and_prints_for_scripts(service: ScriptedService) -> None:
    service.on("GET /v1/allocations", a_list(an_allocation(key="a"), an_allocation(key="b")))
    result = run(service, "get", "allocations", "--filter", "phase=bound", "--filter", "self=x", "-o", "name")
    assert result.stdout == "a\nb\n"
    assert (service.asked[0].query["phase"], service.asked[0].query["self"]) == (["bound"], ["x"])
    documents = json.loads(run(service, "get", "allocations", "-o", "json").stdout)
    assert documents[0]["a_field_of_a_later_release"] == {"ignored": True}


def test_release_waits_until_the_bytes_are_free(service: ScriptedService) -> None:
    service.on("DELETE /v1/allocations/k", Answer(status=202, body=an_allocation(phase="releasing")))
    releasing, released = (Answer(body=an_allocation(phase=phase)) for phase in ("sanitizing", "released"))
    service.on("GET /v1/allocations/k", releasing, released)
    assert run(service, "release", "k").stdout == "k: releasing\n"
    assert run(service, "release", "k", "--wait").stdout == "k: released\n"


@pytest.mark.parametrize(("wait", "exit_code"), [((), 0), (("--wait",), 1)])
def test_release_that_waits_for_the_host_says_so_at_once(
    service: ScriptedService, wait: tuple[str, ...], exit_code: int
) -> None:
    service.on("DELETE /v1/allocations/k", Answer(status=202, body=an_allocation(phase="release_blocked")))
    service.on("GET /v1/allocations/k", Answer(body=an_allocation(phase="release_blocked")))
    result = run(service, "release", "k", *wait)
    assert result.exit_code == exit_code
    assert "k is release_blocked" in result.stderr


def test_bind_and_unbind_show_the_allocation(service: ScriptedService) -> None:
    for verb in ("PUT", "DELETE"):
        service.on(f"{verb} /v1/allocations/k/binding", Answer(status=202, body=an_allocation(phase="binding")))
    assert "binding" in run(service, "bind", "k", "--host", "node-3").stdout
    assert "binding" in run(service, "unbind", "k").stdout


def test_a_timeline_is_a_table_with_the_time_since_its_start(service: ScriptedService) -> None:
    later = NOW.replace("00.123456", "01.373456")
    change = {"seq": 4, "after": {"phase": "reserved"}, "actor": "admin", "cause": None}
    sent = {"operation": "o", "component": "sw-0", "opcode": 0x5201, "return_code": 0, "request_raw": "00" * 40}
    story = a_timeline(
        {"at": NOW, "kind": "event", "title": "allocation.reserved", "facts": change},
        {"at": later, "kind": "frame", "title": "Bind vPPB", "facts": sent},
        truncated=True,
    )
    service.on("GET /v1/allocations/k/timeline", story)
    lines = run(service, "timeline", "k").stdout.splitlines()
    assert lines[1].endswith("allocation.reserved  phase=reserved by=admin")
    assert " ".join(lines[2].split()) == (
        "2026-03-01 03:12:01.373 +1250 ms frame Bind vPPB component=sw-0 opcode=5201h return_code=0"
    )
    assert "longer story" in lines[3]


def test_events_are_one_line_each(service: ScriptedService) -> None:
    service.on("GET /v1/fabrics", a_list(as_of=106))
    service.on("GET /v1/events", an_event_page(105, next_since=105), an_event_page(next_since=106))
    result = run(service, "events", "--kind", "allocation", "-o", "json")
    assert [json.loads(line)["seq"] for line in result.stdout.splitlines()] == [105]
    assert [each.query["since"] for each in service.asked if each.path == "/v1/events"] == [["6"], ["105"]]


def test_invariants_that_hold_end_well_and_broken_ones_do_not(service: ScriptedService) -> None:
    body = {"as_of": 7, "checks": [{"name": "one owner", "examined": 12}], "violations": []}
    broken = [{"name": "one owner", "objects": ["mld-0"], "detail": "two owners"}]
    service.on("GET /v1/invariants", Answer(body=body), Answer(body=body | {"violations": broken}))
    held = run(service, "invariants")
    assert (held.exit_code, "holds" in held.stdout) == (0, True)
    failed = run(service, "invariants")
    assert failed.exit_code == 1
    assert 'one owner: two owners: ["mld-0"]' in failed.stdout


def test_version_names_both(service: ScriptedService) -> None:
    service.on("GET /v1/version", Answer(body={"version": "9.9"}))
    assert run(service, "version").stdout.splitlines()[1] == "service: version=9.9"


def watching(service: ScriptedService) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "fabric_manager", "events", "--watch", "--since", "0", "-o", "name"],
        env=os.environ | {"FABRIC_MANAGER_SERVER": service.url, "FABRIC_MANAGER_TOKEN": "secret"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_ctrl_c_ends_a_watch_quietly(service: ScriptedService) -> None:
    service.on("GET /v1/events", an_event_page(1, next_since=1), an_event_page(next_since=1))
    process = watching(service)
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=20)
    assert (process.returncode, complaint) == (130, b"")


def test_a_reader_that_goes_away_ends_a_watch_quietly(service: ScriptedService) -> None:
    pages = (an_event_page(seq, next_since=seq, as_of=2000) for seq in range(1, 2000))
    service.on("GET /v1/events", *pages)
    process = watching(service)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"1\n"
    process.stdout.close()
    assert process.wait(timeout=20) == 141
    assert process.stderr.read() == b""
    process.stderr.close()
