"""Small files that only the service's user may read."""

import os
from collections.abc import Callable
from pathlib import Path


def kept(path: Path, make: Callable[[], str]) -> str:
    """The file's text; what `make` says when it is not there yet."""
    if not path.exists():
        write_private(path, make())
    return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    """0600, complete or not there at all."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text + "\n")
        out.flush()
        os.fsync(out.fileno())
    temporary.rename(path)
