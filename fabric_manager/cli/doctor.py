"""Is everything as it should be, and what to do where it is not: one line for each thing looked at."""

import asyncio
import contextlib
import stat
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from pathlib import Path
from uuid import uuid4

import click

from fabric_manager.cli import formatting
from fabric_manager.cli.connection import RETRY_S, TOKEN_FILE, connection_options, token_from
from fabric_manager.cli.failures import EXIT_PROBLEM
from fabric_manager.client import ClientError, FabricManager, ProblemError, UnreachableError

CLOCK_S_MAX = 5.0  # the service tells whole seconds, and the answer takes its time
NAMES_MAX = 5
ALARMS_MAX = 10
OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    state: str  # ok, warn or fail
    about: str
    detail: str
    next: str = ""


Findings = AsyncGenerator[Finding, None]


@click.command()
@connection_options
def doctor(*, servers: tuple[str, ...], token_file: Path | None, data_dir: Path) -> None:
    """Check the service, the way to it and what it knows. Exit code 1 when something fails.

    Nothing is changed.
    """
    if asyncio.run(_report(servers, token_file, data_dir)):
        raise click.exceptions.Exit(EXIT_PROBLEM)


async def _report(servers: tuple[str, ...], token_file: Path | None, data_dir: Path) -> bool:
    """Print every finding as it comes. Whether one of them is a failure."""
    failed = False
    async for finding in findings(servers, token_file, data_dir):
        click.echo(f"{finding.state:<5} {finding.about:<16} {finding.detail}")
        if finding.next:
            click.echo(f"{'':<22} → {finding.next}")
        failed |= finding.state == "fail"
    return failed


async def findings(servers: tuple[str, ...], token_file: Path | None, data_dir: Path) -> Findings:
    for finding in _of_data_directory(data_dir):
        yield finding
    try:
        token = token_from(token_file, data_dir)
        manager = FabricManager(servers, token, retry_s=RETRY_S)
    except (click.UsageError, ValueError) as error:
        message = error.message if isinstance(error, click.UsageError) else str(error)
        yield Finding(state="fail", about="token", detail=message, next="`serve` writes one; admins make others.")
        manager = FabricManager(servers, retry_s=RETRY_S)
    async with manager, contextlib.aclosing(_of_service(manager, servers)) as told:
        async for finding in told:
            yield finding


def _of_data_directory(data_dir: Path) -> Iterator[Finding]:
    """Only where the service lives on this machine."""
    if not data_dir.is_dir():
        yield Finding(state="ok", about="data directory", detail=f"{data_dir}: none here, so nothing to look at")
        return
    for path in (data_dir, data_dir / TOKEN_FILE):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            yield Finding(state="warn", about="data directory", detail=f"{path}: {error.strerror}")
            continue
        if mode & OTHERS:
            yield Finding(
                state="fail" if path.name == TOKEN_FILE else "warn",
                about="data directory",
                detail=f"{path} has mode {stat.S_IMODE(mode):04o}: others than its owner can get at it",
                next=f"chmod go= {path}",
            )
        else:
            yield Finding(state="ok", about="data directory", detail=f"{path} is its owner's alone")


async def _of_service(manager: FabricManager, servers: tuple[str, ...]) -> Findings:
    try:
        readiness = await manager.readiness()
    except ClientError as error:
        yield Finding(
            state="fail",
            about="service",
            detail=str(error),
            next="Start it with `fabric-manager serve`, or name another with --server.",
        )
        return
    yield Finding(state="ok", about="service", detail=f"answers at {', '.join(servers)}")
    yield _of_clock(readiness.at, datetime.now(UTC))
    for check in readiness.document.get("checks", ()):
        state, then = ("ok", "") if check["ok"] else ("fail", "Look into the service's log.")
        yield Finding(state=state, about="ready", detail=f"{check['name']}: {check['detail']}", next=then)
    for look in (_of_token, _of_version, _of_fabrics, _of_invariants, _of_alarms):
        try:
            async for finding in look(manager):
                yield finding
        except ProblemError as problem:
            yield Finding(state="fail", about=ABOUT[look.__name__], detail=f"{problem.code}: {problem}")
            if problem.status == 401:
                return  # nothing else would be answered either
        except UnreachableError as error:
            yield Finding(state="fail", about=ABOUT[look.__name__], detail=str(error))


def _of_clock(theirs: datetime | None, ours: datetime) -> Finding:
    if theirs is None:
        return Finding(state="warn", about="clock", detail="the service does not tell its time")
    apart_s = abs((ours - theirs).total_seconds())
    if apart_s > CLOCK_S_MAX:
        detail = f"{apart_s:.0f} s apart from the service's: ages shown here are wrong by that"
        return Finding(state="warn", about="clock", detail=detail, next="Set both machines' clocks by NTP.")
    return Finding(state="ok", about="clock", detail=f"within {CLOCK_S_MAX:.0f} s of the service's")


async def _of_token(manager: FabricManager) -> Findings:
    """What it may do is seen from what it would be refused: nothing has a made-up id, so nothing is changed."""
    await manager.version()
    try:
        await manager.inventory.cordon(str(uuid4()))
    except ProblemError as problem:
        if problem.status not in (403, 404):
            raise
        may = "may read and change the inventory" if problem.status == 404 else "may not change the inventory"
        yield Finding(state="ok", about="token", detail=f"accepted; it {may}")


async def _of_version(manager: FabricManager) -> Findings:
    theirs, ours = (await manager.version())["version"], installed_version("fabric-manager")
    if theirs == ours:
        yield Finding(state="ok", about="version", detail=f"{ours}, here and there")
    else:
        detail = f"the service is {theirs}, this command is {ours}"
        yield Finding(state="warn", about="version", detail=detail, next="Use the command of the service's release.")


async def _of_fabrics(manager: FabricManager) -> Findings:
    found = await manager.noun("fabrics").list()
    if not found:
        yield Finding(
            state="warn",
            about="fabrics",
            detail="none is declared, so there is no memory to hand out",
            next="Declare one: `fabric-manager apply -f FILE`, or `serve --topology FILE`.",
        )
    for each in found:
        name, state = each["name"], each["state"]
        reason = f": {each['state_reason']}" if each["state_reason"] else ""
        if state == "up" and each["admin_state"] == "active":
            yield Finding(state="ok", about="fabrics", detail=f"{name} is up")
        elif state == "up":
            detail = f"{name} is up and {each['admin_state']}: nothing that changes hardware is sent"
            yield Finding(state="warn", about="fabrics", detail=detail)
        else:
            yield Finding(
                state="fail" if state == "unreachable" else "warn",
                about="fabrics",
                detail=f"{name} is {state}{reason}",
                next=f"Look at its endpoint, {each['endpoint']}, and at `fabric-manager describe fabrics {name}`.",
            )


async def _of_invariants(manager: FabricManager) -> Findings:
    proof = await manager.invariants()
    for each in proof.violations:
        names = formatting.value("objects", list(each.objects[:NAMES_MAX]))
        yield Finding(
            state="fail",
            about="invariants",
            detail=f"{each.name}: {each.detail}: {names}",
            next="Cordon what is named, keep the data directory and the log as they are, and report it.",
        )
    if not proof.violations:
        yield Finding(state="ok", about="invariants", detail=f"all {len(proof.checks)} hold")


async def _of_alarms(manager: FabricManager) -> Findings:
    found = (await manager.alarms())["items"]
    for each in found[:ALARMS_MAX]:
        yield Finding(
            state="fail" if each["severity"] == "critical" else "warn",
            about="alarms",
            detail=f"{each['kind']} {each['object']}: {each['detail']}",
            next=f"Read {each['runbook']}.",
        )
    if len(found) > ALARMS_MAX:
        detail = f"{len(found) - ALARMS_MAX} more are open"
        yield Finding(state="warn", about="alarms", detail=detail, next="See `fabric-manager alarms`.")
    if not found:
        yield Finding(state="ok", about="alarms", detail="none is open")


ABOUT = {
    _of_token.__name__: "token",
    _of_version.__name__: "version",
    _of_fabrics.__name__: "fabrics",
    _of_invariants.__name__: "invariants",
    _of_alarms.__name__: "alarms",
}
