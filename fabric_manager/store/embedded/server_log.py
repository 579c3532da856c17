"""postgres.log: what the server says about itself."""

import os
import shutil
from pathlib import Path

LOG_BYTES_MAX = 8 << 20
TAIL_BYTES_MAX = 2000
TAIL_LINES_MAX = 5


def bound_log(file: Path, *, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Keep one earlier part beside it. Emptied in place, because the server appends to the file that it has open."""
    if not file.exists() or file.stat().st_size <= bytes_max:
        return
    earlier = file.with_name(f"{file.name}.1")
    shutil.copyfile(file, earlier)
    earlier.chmod(0o600)
    os.truncate(file, 0)


def last_lines(file: Path) -> str:
    try:
        tail = file.read_bytes()[-TAIL_BYTES_MAX:]
    except OSError as error:
        return str(error)
    return " | ".join(tail.decode(errors="replace").splitlines()[-TAIL_LINES_MAX:])
