"""The PostgreSQL that `serve` brings along when nobody points it at another one."""

from fabric_manager.store.embedded.binaries import Binaries, find_binaries
from fabric_manager.store.embedded.errors import DataDirectoryInUseError, LauncherError
from fabric_manager.store.embedded.launcher import EmbeddedPostgres
from fabric_manager.store.embedded.lock import DataDirectoryLock

__all__ = [
    "Binaries",
    "DataDirectoryInUseError",
    "DataDirectoryLock",
    "EmbeddedPostgres",
    "LauncherError",
    "find_binaries",
]
