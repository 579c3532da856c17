"""The graph of the fabrics on a terminal, and files that describe one to rehearse with."""

import sys
from pathlib import Path

import click

from fabric_manager.cli import formatting, generation, tree
from fabric_manager.cli.connection import asking
from fabric_manager.cli.failures import EXIT_NOT_FOUND
from fabric_manager.cli.proof import scripted_option
from fabric_manager.client import Document, FabricManager

BINDINGS_MAX = 5000  # a tree of more is not read by anybody


class ShowsByDefault(click.Group):
    """Without the name of a subcommand, options are those of `show`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ShowsByDefault)
def topology() -> None:
    """Show what hangs on what (`topology` alone is `topology show`), or write a file for a rehearsal."""


@topology.command()
@click.option("--switch", help="Only this switch.")
@scripted_option
@asking
async def show(manager: FabricManager, *, switch: str | None, output: str) -> None:
    """Show fabrics, their switches, hosts with what each vPPB holds, and devices with how full they are."""
    document = await manager.topology()
    if output != "table":
        click.echo(formatting.scripted(document, output))
        return
    bindings: list[Document] = []
    async for each in manager.noun("bindings").iterate():
        bindings.append(each)
        if len(bindings) == BINDINGS_MAX:
            break
    branches = list(tree.Graph(document, bindings).trees(switch=switch))
    if switch is not None and not branches:
        click.echo(f"Error: there is no switch {switch}", err=True)
        raise click.exceptions.Exit(EXIT_NOT_FOUND)
    for branch in branches:
        for line in tree.lines(branch):
            click.echo(line)
    if document["truncated"]:
        click.echo(f"There are more {', '.join(document['truncated'])} than are shown.", err=True)


@topology.command()
@click.option("--devices", type=click.IntRange(1), required=True, help="How many memory devices.")
@click.option("--hosts", type=click.IntRange(1), required=True, help="How many hosts, each on one port.")
@click.option("--switches", type=click.IntRange(1), help="How many switches; else one for every 32 ports.")
@click.option("--kind", type=click.Choice(["mld", "dcd", "mixed"]), default="mixed", show_default=True)
@click.option("-f", "--file", "path", type=click.Path(path_type=Path, dir_okay=False), help="Else standard output.")
def generate(*, devices: int, hosts: int, switches: int | None, kind: str, path: Path | None) -> None:
    """Write a topology file of simulated hardware for `serve --topology`."""
    count = switches or generation.switches_for(devices, hosts)
    try:
        scale = generation.Scale(devices=devices, hosts=hosts, switches=count, kind=kind)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    text = generation.topology_text(scale)
    if path is None:
        sys.stdout.write(text)
        return
    try:
        path.write_text(text)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
