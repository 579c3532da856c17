"""What can be started: the service, the simulated rack, a migration."""

import asyncio
from importlib.resources import files
from pathlib import Path

import uvloop

from fabric_manager.api.application import openapi_document
from fabric_manager.app.addresses import CannotStartError
from fabric_manager.app.addresses import database_url as complete
from fabric_manager.app.service import Service, WhenReady
from fabric_manager.settings import Settings
from fabric_manager.southbound.simulator.server import serve_rack
from fabric_manager.southbound.simulator.wire import LOOPBACK
from fabric_manager.store import schema
from fabric_manager.telemetry.logs import configure_logging


def serve(settings: Settings, *, when_ready: WhenReady | None = None) -> None:
    """Run the service until SIGTERM or Ctrl-C; stops all that it started.

    `when_ready` is awaited with the URL and the token file once requests are served. Raises DataDirectoryInUseError,
    LauncherError, FabricError, CannotStartError and OSError with a sentence an operator can act on.
    """
    configure_logging(settings.log_level, settings.log_format)
    uvloop.run(Service(settings, when_ready).run())


def simulate(
    *,
    state_dir: Path,
    rack_file: Path,
    seed: int | None = None,
    listen: str = LOOPBACK,
    announce: str | None = None,
) -> None:
    """Run the simulated rack in the foreground. `announce` is how its callers reach `listen`, when that differs."""
    asyncio.run(serve_rack(state_dir=state_dir, rack_file=rack_file, seed=seed, listen=listen, announce=announce))


def migrate(*, database_url: str, password_file: Path | None = None, revision: str = "head") -> None:
    """Bring a database to `revision`. Blocking, idempotent."""
    schema.migrate(complete(database_url, password_file), revision=revision)


def example_rack() -> Path:
    """`examples/` travels inside the wheel, and lies beside the package in a checkout."""
    package = Path(str(files("fabric_manager")))
    inside = package / "examples" / "rack.yaml"
    return inside if inside.is_file() else package.parent / "examples" / "rack.yaml"


__all__ = ["CannotStartError", "example_rack", "migrate", "openapi_document", "serve", "simulate"]
