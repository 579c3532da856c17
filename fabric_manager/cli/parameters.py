"""What options are made of."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from fabric_manager.domain.units import parse_size
from fabric_manager.settings import Settings, variable


class Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(f"{error}, like 64GiB", param, ctx)


class Pair(click.ParamType[tuple[str, str]]):
    name = "name=value"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, content = value.partition("=")
        if not name or not equals:
            self.fail(f"{value!r}: write it as name=value", param, ctx)
        return name, content


SIZE = Size()
PAIR = Pair()
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
DIRECTORY = click.Path(path_type=Path, file_okay=False)

SETTINGS = {each.name: each for each in fields(Settings)}


def setting_option(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option for a setting: its default, its words and its variable in the environment."""
    described = {"default": SETTINGS[name].default, "help": SETTINGS[name].metadata["doc"]} | attributes
    option = "--" + name.replace("_", "-")
    return click.option(option, envvar=variable(name), show_envvar=True, show_default=True, **described)
