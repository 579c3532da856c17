"""Completion of commands, nouns and options in a shell."""

import click
from click.shell_completion import get_completion_class

PROGRAM = "fabric-manager"
VARIABLE = "_FABRIC_MANAGER_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print what makes a shell complete this command.

    \b
    bash:  eval "$(fabric-manager completion bash)"
    zsh:   eval "$(fabric-manager completion zsh)"
    fish:  fabric-manager completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that the choice names"
    click.echo(kind(context.find_root().command, {}, PROGRAM, VARIABLE).source())
