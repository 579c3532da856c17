"""What is asked for: the same options wherever a request is made or only thought about."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from fabric_manager.cli.parameters import PAIR, SIZE
from fabric_manager.client import AllocationRequest

Command = Callable[..., Any]

OPTIONS = (
    click.option("--tenant", required=True, help="Who is charged for it."),
    click.option(
        "--size", "size_bytes", required=True, type=SIZE, metavar="64GiB", help="With one of TiB, GiB, MiB, KiB, B."
    ),
    click.option("--pool", help="Only from this pool."),
    click.option("--device", help="Only from this device."),
    click.option("--host", help="Bind it to this host."),
    click.option("--no-bind", is_flag=True, help="Reserve only; bind it later."),
    click.option("--label", "labels", type=PAIR, multiple=True),
)


def order_options(command: Command) -> Command:
    """Gives a command OPTIONS; `order_from` makes a request of them."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def order_from(*, no_bind: bool, labels: Sequence[tuple[str, str]], **wanted: Any) -> AllocationRequest:
    if wanted["pool"] and wanted["device"]:
        raise click.UsageError("name a pool or a device, not both")
    return AllocationRequest(bind=False if no_bind else None, labels=dict(labels), **wanted)
