"""Sizes: integers of bytes inside, IEC suffixes in text."""

import re
from collections.abc import Mapping

KiB, MiB, GiB, TiB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
UNITS: Mapping[str, int] = {"TiB": TiB, "GiB": GiB, "MiB": MiB, "KiB": KiB, "B": 1}


def parse_size(text: str) -> int:
    """Read "64 GiB" as 68719476736. Anything outside IEC ("64 GB", "64G") is refused, never guessed."""
    match = re.fullmatch(r"([0-9]+) ?(TiB|GiB|MiB|KiB|B)", text)
    if match is None:
        raise ValueError(f"size {text!r}: write a whole number and one of {', '.join(UNITS)}")
    return int(match[1]) * UNITS[match[2]]


def format_size(size_bytes: int) -> str:
    """Write 68719476736 as "64 GiB": the largest unit that loses no digit, so parse_size undoes it."""
    for suffix, unit in UNITS.items():
        if size_bytes % unit == 0 and (size_bytes or unit == 1):
            return f"{size_bytes // unit} {suffix}"
    raise AssertionError("unreachable: every int divides by one byte")
