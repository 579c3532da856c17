"""Drivers by name: one that cannot be used is named, and harms no other."""

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path

import pytest

from fabric_manager.southbound import registry
from fabric_manager.southbound.driver import FabricDriver
from fabric_manager.southbound.registry import DriverNotUsableError, driver_names, open_driver


async def opened(name: str, tmp_path: Path) -> FabricDriver:
    return await open_driver(
        name, f"simulator:{tmp_path}", frames=lambda frame: None, timeout_s=0.1, now=lambda: datetime.now(UTC)
    )


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install a vendor's package by what its entry point says."""

    def install(value: str) -> None:
        vendor = EntryPoint(name="vendor", value=value, group=registry.GROUP)
        found = EntryPoints([*entry_points(group=registry.GROUP), vendor])
        monkeypatch.setattr(registry, "entry_points", found.select)

    return install


async def test_the_simulator_is_installed(tmp_path: Path) -> None:
    assert "simulator" in driver_names()
    driver = await opened("simulator", tmp_path)
    await driver.close()


@pytest.mark.parametrize("value", ["no_such_module:connect", "json:no_such_function", "math:pi"])
async def test_a_broken_driver_is_named_and_harms_no_other(
    tmp_path: Path, installed: Callable[[str], None], value: str
) -> None:
    installed(value)
    with pytest.raises(DriverNotUsableError, match="driver 'vendor'") as broken:
        await opened("vendor", tmp_path)
    assert broken.value.name == "vendor"
    assert driver_names() == ("simulator", "vendor")
    await (await opened("simulator", tmp_path)).close()


async def test_an_unknown_driver_is_told_apart_from_a_broken_one(tmp_path: Path) -> None:
    with pytest.raises(DriverNotUsableError, match="not installed; there are simulator"):
        await opened("absent", tmp_path)


@pytest.mark.parametrize("endpoint", ["", "simulator:", "tcp:127.0.0.1"])
async def test_an_endpoint_that_names_no_rack_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="simulator:<state directory>"):
        await open_driver(
            "simulator", endpoint, frames=lambda frame: None, timeout_s=0.1, now=lambda: datetime.now(UTC)
        )
