"""Commands that start something of the service itself."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from fabric_manager import settings
from fabric_manager.cli import formatting
from fabric_manager.cli.parameters import DIRECTORY, FILE, setting_option
from fabric_manager.domain.errors import FabricError

host_option = setting_option("host")
port_option = setting_option("port", type=click.IntRange(0, 65535))
data_dir_option = setting_option("data_dir", type=DIRECTORY)


@click.command()
@host_option
@port_option
@data_dir_option
@setting_option("database_url")
@setting_option("topology", type=FILE)
@setting_option("role", type=click.Choice(["all", "api", "worker"]))
def serve(**options: Any) -> None:
    """Run the service until Ctrl-C, which stops all that it started."""
    from fabric_manager import app  # noqa: PLC0415  every other command starts without the web framework

    with told_in_a_sentence():
        app.serve(settings_from(options))


@click.command()
@click.option("--state", "state_dir", required=True, type=DIRECTORY)
@click.option("--rack", "rack_file", required=True, type=FILE)
@click.option("--seed", type=int, help="Makes everything the rack decides by chance repeatable.")
@click.option("--listen", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--announce", help="Name by which callers reach it, where that is not the address it listens on.")
def simulate(state_dir: Path, rack_file: Path, seed: int | None, listen: str, announce: str | None) -> None:
    """Run a simulated rack that keeps its state in a directory."""
    from fabric_manager import app  # noqa: PLC0415

    with told_in_a_sentence():
        app.simulate(state_dir=state_dir, rack_file=rack_file, seed=seed, listen=listen, announce=announce)


@click.command()
@setting_option("database_url", required=True, help="the external PostgreSQL; the embedded one migrates at start")
@setting_option("database_password_file", type=FILE)
@click.option("--revision", default="head", show_default=True, help="Where to go to.")
def migrate(database_url: str, database_password_file: Path | None, revision: str) -> None:
    """Bring a database's schema to a revision."""
    from fabric_manager import app  # noqa: PLC0415

    with told_in_a_sentence():
        app.migrate(database_url=database_url, password_file=database_password_file, revision=revision)


@click.command()
def openapi() -> None:
    """Print the description of the HTTP interface."""
    from fabric_manager import app  # noqa: PLC0415

    click.echo(formatting.as_yaml(app.openapi_document()))


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """What an operator can act on ends in its sentence; what is left is a mistake of ours and keeps its trace."""
    from fabric_manager.app import CannotStartError  # noqa: PLC0415
    from fabric_manager.store.embedded import DataDirectoryInUseError, LauncherError  # noqa: PLC0415

    try:
        yield
    except (CannotStartError, DataDirectoryInUseError, LauncherError, FabricError, OSError) as error:
        raise click.ClickException(str(error)) from error


def settings_from(options: dict[str, Any]) -> settings.Settings:
    """The options of a command over the environment's settings."""
    try:
        return settings.from_environment(os.environ, **options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
