"""Sizes are integers of bytes; text is exact or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_manager.domain.units import UNITS, GiB, KiB, MiB, TiB, format_size, parse_size


@given(st.integers(min_value=0, max_value=1 << 60))
def test_a_size_survives_the_trip_through_text(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(st.integers(min_value=1, max_value=1 << 20), st.sampled_from(sorted(UNITS)))
def test_text_is_written_with_the_largest_exact_unit(count: int, unit: str) -> None:
    number, suffix = format_size(count * UNITS[unit]).split(" ")
    assert all(int(number) * UNITS[suffix] % larger for larger in UNITS.values() if larger > UNITS[suffix])


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0 B", 0),
        ("1 B", 1),
        ("64 GiB", 68719476736),
        ("64GiB", 68719476736),
        ("2 MiB", 2 * MiB),
        ("16 KiB", 16 * KiB),
        ("1 TiB", TiB),
    ],
)
def test_a_size_is_read(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["64 GB", "64G", "64", "1.5 GiB", "-1 GiB", "+1 GiB", "", " 1 GiB", "1 GiB ", "1  GiB", "1 gib", "1 GiB\n",
     "1_0 GiB", "0x10 GiB", "٣ GiB", "1e3 GiB", "GiB", "inf GiB"],
)  # fmt: skip
def test_an_ambiguous_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write a whole number"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 B"), (1, "1 B"), (1023, "1023 B"), (GiB, "1 GiB"), (GiB + KiB, "1048577 KiB")]
)
def test_a_size_is_written_without_losing_a_digit(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text
