"""How values read to people and to scripts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import click
import yaml
from tabulate import tabulate

from fabric_manager.client import Document
from fabric_manager.domain.units import UNITS, format_size

NOTHING = "-"
FACTS_LENGTH_MAX = 100
BAR_WIDTH, BAR_EMPTY = 20, "."
AGES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml", "name"]),
    default="table",
    show_default=True,
    help="For people, or for scripts: the service's own documents, or one key, name or id a line.",
)

wide_output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "name"]),
    default="table",
    show_default=True,
    help="For people, wide with more columns; or for scripts: the service's own documents, or one name a line.",
)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return tabulate(list(rows), headers=headers, tablefmt="plain", disable_numparse=True)


def aligned(facts: Mapping[str, str], *, indent: str = "") -> str:
    """One fact a line, the values below each other."""
    width = max((len(name) for name in facts), default=0) + 1
    return "\n".join(f"{indent}{name + ':':<{width}}  {text}".rstrip() for name, text in facts.items())


def bar(parts: Sequence[tuple[str, int]], total: int, *, width: int = BAR_WIDTH) -> str:
    """Each part's share of `total` drawn with its sign, in brackets; what is something is at least one sign wide."""
    drawn = "".join(sign * _cells(amount, total, width) for sign, amount in parts)[:width]
    return f"[{drawn:{BAR_EMPTY}<{width}}]"


def _cells(amount: int, total: int, width: int) -> int:
    return max(1, round(width * amount / total)) if amount and total else 0


def rough_size(size_bytes: int) -> str:
    """The size in the largest unit that leaves a whole, to two decimals: for the eye, not for parsing."""
    suffix, unit = next(((suffix, unit) for suffix, unit in UNITS.items() if size_bytes >= unit), ("B", 1))
    return f"{size_bytes / unit:.2f}".rstrip("0").rstrip(".") + f" {suffix}"


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def as_yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip("\n")


def name_of(document: Document) -> str:
    return str(next(document[field] for field in ("key", "name", "id") if field in document))


def scripted(documents: Document | Sequence[Document], output: str) -> str:
    """`documents` for `-o json`, `yaml` and `name`."""
    if output == "json":
        return as_json(documents)
    if output == "yaml":
        return as_yaml(documents)
    several = [documents] if isinstance(documents, Mapping) else documents
    return "\n".join(name_of(each) for each in several)


def size(size_bytes: int | None) -> str:
    return NOTHING if size_bytes is None else format_size(size_bytes)


def age(then: datetime, now: datetime) -> str:
    """The time since, in the largest unit that is not zero: "3m". A clock that runs ahead of ours is "0s"."""
    return span(now - then)


def span(time: timedelta) -> str:
    seconds = max(int(time.total_seconds()), 0)
    return next((f"{seconds // unit}{suffix}" for unit, suffix in AGES if seconds >= unit), "0s")


def value(name: str, content: Any) -> str:
    """One fact: bytes get their unit, absence a dash, structure its JSON."""
    if content is None or content == "":
        return NOTHING
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, int) and name.endswith("_bytes"):
        return format_size(content)
    if isinstance(content, Mapping | list | tuple):
        return json.dumps(content, ensure_ascii=False)
    return str(content)


def facts(document: Document) -> str:
    """Facts on one line, cut where a line ends."""
    text = " ".join(f"{name}={value(name, content)}" for name, content in document.items() if content is not None)
    return text if len(text) <= FACTS_LENGTH_MAX else text[: FACTS_LENGTH_MAX - 1] + "…"
