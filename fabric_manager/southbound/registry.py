"""Opens a driver by its name. Vendors add one as an entry point of the group `fabric_manager.drivers`."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from importlib.metadata import EntryPoint, entry_points

from fabric_manager.southbound.driver import FabricDriver, FrameSink

GROUP = "fabric_manager.drivers"
Connect = Callable[..., Awaitable[FabricDriver]]


class DriverNotUsableError(Exception):
    """No driver of that name, or one that cannot be loaded; the other drivers are unharmed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"driver {name!r}: {reason}")
        self.name = name


def driver_names() -> tuple[str, ...]:
    """What is installed. Nothing is imported, so a broken one is listed too."""
    return tuple(sorted(entry_points(group=GROUP).names))


async def open_driver(
    name: str, endpoint: str, *, frames: FrameSink, timeout_s: float, now: Callable[[], datetime]
) -> FabricDriver:
    """Await the entry point's `connect(endpoint, frames=, timeout_s=, now=)`.

    Raises DriverNotUsableError, and whatever DriverError the driver's own `connect` raises.
    """
    connect = _load(_entry(name))
    return await connect(endpoint, frames=frames, timeout_s=timeout_s, now=now)


def _entry(name: str) -> EntryPoint:
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise DriverNotUsableError(name, f"not installed; there are {', '.join(driver_names()) or 'none'}")
    if len(found) > 1:
        raise DriverNotUsableError(name, f"installed twice: {', '.join(sorted(entry.value for entry in found))}")
    return next(iter(found))


def _load(entry: EntryPoint) -> Connect:
    try:
        connect: Connect = entry.load()
    except Exception as error:  # a vendor's module may fail in any way while it is imported
        raise DriverNotUsableError(entry.name, f"{entry.value} cannot be loaded: {error!r}") from error
    if not callable(connect):
        raise DriverNotUsableError(entry.name, f"{entry.value} is not a function")
    return connect
