"""What an operator can read and act on. str() is the sentence that `serve` prints before it ends."""

from pathlib import Path


class LauncherError(Exception):
    """The embedded database cannot run until a person acts; the sentence says how."""


class DataDirectoryInUseError(Exception):
    """Another live process holds the data directory. `pid` is None when its holder had not written it yet."""

    def __init__(self, *, data_dir: Path, pid: int | None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{data_dir} is in use by {holder}: stop it, or choose another --data-dir")
        self.data_dir = data_dir
        self.pid = pid
