"""Every setting, each also as FABRIC_MANAGER_<NAME>. Read only in cli and app."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


def setting(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `serve` is told. Times in seconds."""

    host: str = setting("127.0.0.1", "address to listen on")
    port: int = setting(8080, "port to listen on; 0 picks a free one")
    data_dir: Path = setting(Path(".data"), "where the embedded database, the token and the simulated rack live")
    database_url: str | None = setting(None, "PostgreSQL 15 or newer; none: the embedded one")
    database_password_file: Path | None = setting(None, "file with the password for database_url")
    topology: Path | None = setting(None, "YAML file with `hardware:` (simulator) and `inventory:` (imported at start)")
    role: str = setting("all", "all, api (serve HTTP) or worker (drive hardware)")
    tenants_auto_create: bool | None = setting(
        None, "create tenants on first use; default: only with the embedded database"
    )
    bootstrap_token_file: Path | None = setting(None, "file whose content becomes an admin token at start")
    connections_max: int = setting(16, "database connections of each of the two pools")
    ownership_ttl_s: float = setting(5.0, "how long a silent process keeps its fabrics")
    ownership_renew_s: float = setting(1.0, "how often ownership is renewed")
    command_s: float = setting(2.0, "longest wait for an answer from hardware")
    scan_s: float = setting(10.0, "between two comparisons of hardware and database")
    poll_s: float = setting(0.5, "between two looks for due work when nobody wakes the loop")
    events_keep: int = setting(5_000_000, "events kept at least; older ones go a million at a time")
    metrics_address: str | None = setting(
        None, "host:port where /metrics is served to anybody; none: only beside the API, to those with a token"
    )
    invariants_s: float = setting(300.0, "between two checks of the promises on the live database")
    log_format: str = setting("json", "json or text")
    log_level: str = setting("INFO", "DEBUG, INFO, WARNING or ERROR")

    def __post_init__(self) -> None:
        if self.log_format not in ("json", "text"):
            raise ValueError(f"log_format is {self.log_format!r}; it must be json or text")


def variable(name: str) -> str:
    return f"FABRIC_MANAGER_{name.upper()}"


def from_environment(environ: Mapping[str, str], **given: Any) -> Settings:
    """`given` (not None) wins over the environment, which wins over the defaults. Raises ValueError with a sentence."""
    values: dict[str, Any] = {}
    for spec in fields(Settings):
        text = environ.get(variable(spec.name))
        if given.get(spec.name) is not None:
            values[spec.name] = given[spec.name]
        elif text:
            values[spec.name] = read(spec.name, str(spec.type), text)
    return Settings(**values)


def read(name: str, kind: str, text: str) -> Any:
    try:
        if "Path" in kind:
            return Path(text)
        if "bool" in kind:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if "int" in kind:
            return int(text)
        return float(text) if "float" in kind else text
    except (ValueError, KeyError):
        raise ValueError(f"{variable(name)} is {text!r}; it must be a {kind.split(' |', maxsplit=1)[0]}") from None
