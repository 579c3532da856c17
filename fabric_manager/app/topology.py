"""The topology file: `hardware:` is the simulator's, `inventory:` is declared at each start by the API's own models."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from fabric_manager.api.declarations import Inventory
from fabric_manager.domain.errors import Code, FabricError


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What a file says. `simulated`: it describes hardware of the simulator."""

    path: Path | None = None
    simulated: bool = False
    inventory: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)


def read_topology(path: Path | None) -> Topology:
    """Raises FabricError validation_failed that names the file and the first thing wrong with it."""
    if path is None:
        return Topology()
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise unusable(path, str(error)) from error
    if not isinstance(content, dict) or not set(content) <= {"hardware", "inventory"}:
        raise unusable(path, "it has other parts than `hardware` and `inventory`")
    try:
        inventory = Inventory.model_validate(content.get("inventory") or {})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise unusable(path, f"inventory.{where}: {first['msg']}") from error
    return Topology(
        path=path, simulated="hardware" in content, inventory=inventory.model_dump(mode="json", exclude_none=True)
    )


def unusable(path: Path, why: str) -> FabricError:
    return FabricError(Code.VALIDATION_FAILED, f"the topology file {path} cannot be used: {why}")
