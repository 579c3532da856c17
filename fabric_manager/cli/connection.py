"""Which service a command asks, and as whom."""

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from fabric_manager.cli.parameters import DIRECTORY, setting_option
from fabric_manager.client import FabricManager

SERVER_DEFAULT = "http://127.0.0.1:8080"
TOKEN_FILE = "admin.token"  # noqa: S105  the file's name
RETRY_S = 3.0

Command = Callable[..., Awaitable[None]]


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which service, as whom: `servers`, `token_file`, `data_dir`."""
    options = (
        click.option(
            "--server",
            "servers",
            multiple=True,
            default=[SERVER_DEFAULT],
            show_default=True,
            envvar="FABRIC_MANAGER_SERVER",
            show_envvar=True,
            help="Address of the service; several equal ones are tried in turn (in the variable, separated by spaces).",
        ),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="File with the token. Else FABRIC_MANAGER_TOKEN, else admin.token in the data directory.",
        ),
        setting_option("data_dir", type=DIRECTORY),
    )
    for option in reversed(options):
        command = option(command)
    return command


def asking(command: Command) -> Callable[..., None]:
    """A command that asks a running service: gets a client first, and the options that say which."""

    @connection_options
    @functools.wraps(command)
    def run(*, servers: tuple[str, ...], token_file: Path | None, data_dir: Path, **arguments: Any) -> None:
        asyncio.run(_ask(command, servers, token_from(token_file, data_dir), arguments))

    return run


async def _ask(command: Command, servers: tuple[str, ...], token: str, arguments: dict[str, Any]) -> None:
    try:
        manager = FabricManager(servers, token, retry_s=RETRY_S)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    async with manager:
        await command(manager, **arguments)


def token_from(token_file: Path | None, data_dir: Path) -> str:
    if token_file is not None:
        return read_token(token_file)
    if token := os.environ.get("FABRIC_MANAGER_TOKEN", "").strip():
        return token
    return read_token(data_dir / TOKEN_FILE)


def read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a token"
        raise click.UsageError(
            f"no token: {path}: {reason}. Name one with --token-file, FABRIC_MANAGER_TOKEN or --data-dir."
        ) from error
    if not token:
        raise click.UsageError(f"no token: {path} is empty")
    return token
