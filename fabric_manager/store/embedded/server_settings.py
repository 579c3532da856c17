"""How the embedded server is set, small enough to sit beside the service."""

from collections.abc import Mapping
from pathlib import Path

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",  # the socket is the only way in
    "port": "5432",  # part of the socket's name
    "unix_socket_permissions": "0700",
    "password_encryption": "scram-sha-256",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "max_logical_replication_workers": "0",
    "max_wal_size": "256MB",
    "jit": "off",  # compiling costs more than our longest statement
    "idle_in_transaction_session_timeout": "10s",
    "log_destination": "stderr",
    "logging_collector": "off",  # stderr is already postgres.log
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
SETTINGS_SINCE: Mapping[int, Mapping[str, str]] = {
    18: {"io_method": "sync"},  # no I/O worker processes for a database this small
}
SETTINGS_FORGETFUL: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}


def server_arguments(*, pgdata: Path, socket_dir: Path, major: int, durable: bool) -> list[str]:
    """Given as arguments, not written into PGDATA, so that each release of ours brings its own."""
    settings = {**SETTINGS, "unix_socket_directories": str(socket_dir)}
    for since, later in SETTINGS_SINCE.items():
        settings |= later if major >= since else {}
    settings |= {} if durable else SETTINGS_FORGETFUL
    return ["-D", str(pgdata), *(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))]
