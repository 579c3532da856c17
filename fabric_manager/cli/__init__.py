"""The command `fabric-manager`: the service's own processes, and everything a person asks a running one."""

import click

from fabric_manager.cli.alarms import alarms
from fabric_manager.cli.allocate import allocate, bind, release, unbind
from fabric_manager.cli.completion import completion
from fabric_manager.cli.declare import apply, cordon, export, uncordon
from fabric_manager.cli.demo import demo
from fabric_manager.cli.describe import describe
from fabric_manager.cli.doctor import doctor
from fabric_manager.cli.events import events
from fabric_manager.cli.explain import explain
from fabric_manager.cli.failures import EXIT_CODES, FailingGroup
from fabric_manager.cli.get import get
from fabric_manager.cli.proof import invariants, timeline, version
from fabric_manager.cli.serve import migrate, openapi, serve, simulate
from fabric_manager.cli.top import top
from fabric_manager.cli.topology import topology

COMMANDS = (
    serve,
    demo,
    simulate,
    migrate,
    openapi,
    allocate,
    explain,
    release,
    bind,
    unbind,
    get,
    describe,
    topology,
    top,
    alarms,
    apply,
    export,
    cordon,
    uncordon,
    timeline,
    events,
    invariants,
    doctor,
    version,
    completion,
)


@click.group(cls=FailingGroup, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Hand out pooled CXL memory, and prove who has which bytes."""


for command in COMMANDS:
    main.add_command(command)
