"""The kept state: what was saved is there again, whatever happened to the process."""

from pathlib import Path

import pytest

from fabric_manager.southbound.simulator import keeping
from fabric_manager.southbound.simulator.keeping import Keeping, StateDirectoryInUseError, is_held


def saved(state_dir: Path) -> dict[str, object]:
    opened = Keeping(state_dir)
    opened.close()
    return dict(opened.values())


def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    opened = Keeping(tmp_path)
    opened.save([("a", 1), ("b", {"c": [2]})])
    opened.save([("a", None), ("d", 3)])
    opened.close()
    assert saved(tmp_path) == {"b": {"c": [2]}, "d": 3}


def test_a_line_torn_by_a_kill_is_left_out_and_the_rest_kept(tmp_path: Path) -> None:
    opened = Keeping(tmp_path)
    opened.save([("a", 1)])
    opened.close()
    with (tmp_path / "state.jsonl").open("ab") as log:
        log.write(b'{"a": 2, "b"')
    assert saved(tmp_path) == {"a": 1}


def test_what_did_not_change_is_not_written(tmp_path: Path) -> None:
    opened = Keeping(tmp_path)
    opened.save([("a", 1)])
    size = (tmp_path / "state.jsonl").stat().st_size
    opened.save([("a", 1), ("never", None)])
    assert (tmp_path / "state.jsonl").stat().st_size == size
    opened.close()


def test_the_log_is_rewritten_before_it_grows_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "LINES_MAX", 10)
    opened = Keeping(tmp_path)
    for n in range(100):
        opened.save([("a", n)])
    opened.close()
    assert len((tmp_path / "state.jsonl").read_bytes().splitlines()) <= 11
    assert saved(tmp_path) == {"a": 99}


def test_one_directory_has_one_rack(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "nowhere")
    opened = Keeping(tmp_path)
    assert is_held(tmp_path)
    with pytest.raises(StateDirectoryInUseError, match="another simulated rack"):
        Keeping(tmp_path)
    opened.close()
    assert not is_held(tmp_path)
