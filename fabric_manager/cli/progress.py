"""What is going on with a key while somebody at a terminal waits for it."""

import asyncio
import contextlib
import shutil
import sys
from collections.abc import AsyncIterator

import click

from fabric_manager.client import Allocation, ClientError, FabricManager

LOOK_S = 1.0
ERASE_LINE = "\r\x1b[K"


def at_a_terminal() -> bool:
    return sys.stderr.isatty()


@contextlib.asynccontextmanager
async def telling(manager: FabricManager, key: str) -> AsyncIterator[None]:
    """Meanwhile, one line on stderr says how far it is; nothing when that is no terminal."""
    if not at_a_terminal():
        yield
        return
    task = asyncio.create_task(_tell(manager, key))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        click.echo(ERASE_LINE, err=True, nl=False)


async def _tell(manager: FabricManager, key: str) -> None:
    while True:
        try:
            line = await _line(manager, key)
        except ClientError as error:
            line = f"{key}: {error}"
        width = shutil.get_terminal_size().columns - 1  # a wrapped line could not be erased
        click.echo(ERASE_LINE + " ".join(line.split())[:width], err=True, nl=False)
        await asyncio.sleep(LOOK_S)


async def _line(manager: FabricManager, key: str) -> str:
    allocation = await manager.allocations.get(key)
    if allocation.operation is None:
        return phase_line(allocation)
    operation = await manager.operation(allocation.operation.id)
    far = "" if operation.percent is None else f", {operation.percent} %"
    return f"{phase_line(allocation)}{far}: {operation.reason or operation.state}"


def phase_line(allocation: Allocation) -> str:
    return f"{allocation.key} is {allocation.phase}"
