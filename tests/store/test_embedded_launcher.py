"""The embedded server, started for real: it is private, it comes back, and nothing of it stays behind."""

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from fabric_manager.store.embedded import EmbeddedPostgres, LauncherError, find_binaries
from fabric_manager.store.embedded.private_files import socket_directory
from fabric_manager.store.embedded.processes import pids_in, works_in
from fabric_manager.store.embedded.quarters import child_environment
from fabric_manager.store.embedded.server_log import bound_log, last_lines

LOG = logging.getLogger("test")
DEADLINE_S = 30.0
ROOT = Path(__file__).parents[2]


def a_server(data_dir: Path, **more: object) -> EmbeddedPostgres:
    return EmbeddedPostgres(data_dir=data_dir, log=LOG, durable=False, **more)  # type: ignore[arg-type]


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.02)


async def until_async(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(until, condition, what)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


async def ask(url: str, question: str) -> object:
    async with connected(url) as connection:
        return await connection.fetchval(question)


async def ask_until_answered(url: str, question: str) -> object:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await ask(url, question)
            except (OSError, asyncpg.PostgresError):
                await asyncio.sleep(0.02)


def socket_dir(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


def postmaster_pid(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().splitlines()[0])


def starting_service(data_dir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.store.embedded_service", data_dir]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


@contextmanager
def a_service(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`serve` in a process of its own, which may be killed; ended at the latest with the block."""
    with starting_service(data_dir) as service:
        try:
            assert service.stdout is not None
            yield service, json.loads(service.stdout.readline())["url"]
        finally:
            service.communicate("")


async def test_data_survives_a_stop_and_a_start(tmp_path: Path) -> None:
    async with a_server(tmp_path) as postgres:
        await ask(postgres.url, "CREATE TABLE kept AS SELECT 7 AS n")
        first_url = postgres.url
    assert not pids_in(tmp_path / "postgres")
    async with a_server(tmp_path) as postgres:
        assert await ask(postgres.url, "SELECT n FROM kept") == 7
        assert postgres.url == first_url


async def test_the_server_is_private_durable_and_small(tmp_path: Path) -> None:
    async with EmbeddedPostgres(data_dir=tmp_path, log=LOG) as postgres:
        shown = {}
        async with connected(postgres.url) as connection:
            for name in ("listen_addresses", "fsync", "jit", "max_connections", "idle_in_transaction_session_timeout"):
                shown[name] = await connection.fetchval(f"SHOW {name}")
            database = await connection.fetchrow(
                "SELECT pg_encoding_to_char(encoding) AS encoding, datcollate FROM pg_database"
                " WHERE datname = 'fabric_manager'"
            )
            methods = await connection.fetch("SELECT DISTINCT auth_method FROM pg_hba_file_rules")
        assert shown == {
            "listen_addresses": "",
            "fsync": "on",
            "jit": "off",
            "max_connections": "100",
            "idle_in_transaction_session_timeout": "10s",
        }
        assert tuple(database) == ("UTF8", "C")
        assert [row["auth_method"] for row in methods] == ["scram-sha-256"]
        assert socket_dir(postgres.url).stat().st_mode & 0o777 == 0o700
        for secret in ("postgres.password", "postgres.log"):
            assert (tmp_path / secret).stat().st_mode & 0o777 == 0o600


async def test_a_wrong_password_gets_nobody_in(tmp_path: Path) -> None:
    async with a_server(tmp_path) as postgres:
        host = str(socket_dir(postgres.url))
        for user in ("fabric_manager", "postgres"):
            with pytest.raises(asyncpg.InvalidPasswordError):
                await asyncpg.connect(user=user, database="fabric_manager", host=host, password="guess")


async def test_a_stop_leaves_no_process_and_no_socket_and_may_be_repeated(tmp_path: Path) -> None:
    postgres = a_server(tmp_path)
    await postgres.start()
    directory = socket_dir(postgres.url)
    await postgres.stop()
    await postgres.stop()
    assert not directory.exists()
    assert not pids_in(tmp_path / "postgres")


async def test_a_start_that_is_cancelled_anywhere_leaves_nothing_running(tmp_path: Path) -> None:
    for patience_s in (0.0, 0.05, 0.3, 0.7, 0.9):
        start = asyncio.create_task(a_started(tmp_path))
        await asyncio.wait({start}, timeout=patience_s)
        if start.cancel():
            await asyncio.wait({start})
        else:  # a fast machine was ready already
            await start.result().stop()
        assert not pids_in(tmp_path / "postgres")
        await until_async(lambda: not pids_in(tmp_path / "postgres.new"), "initdb ended")
    async with a_server(tmp_path) as postgres:
        assert await ask(postgres.url, "SELECT 1") == 1


async def test_a_path_longer_than_any_socket_works(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["long" * 20] * 5)
    assert len(str(deep)) > 400
    async with a_server(deep) as postgres:
        assert await ask(postgres.url, "SELECT 1") == 1


async def test_a_path_that_postgres_would_cut_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="longer than"):
        await a_server(tmp_path.joinpath(*["long" * 20] * 13)).start()


async def test_a_path_with_spaces_quotes_and_commas_works(tmp_path: Path) -> None:
    async with a_server(tmp_path / 'it\'s a "dir", 100% ü') as postgres:
        assert await ask(postgres.url, "SELECT 1") == 1


async def test_variables_of_the_callers_shell_do_not_steer_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGDATA": "/nowhere", "PGOPTIONS": "-c jit=on", "PGPORT": "1", "LC_ALL": "xx_YY"}.items():
        monkeypatch.setenv(name, value)
    async with a_server(tmp_path) as postgres:
        monkeypatch.delenv("PGPORT")
        monkeypatch.delenv("PGOPTIONS")
        assert await ask(postgres.url, "SHOW jit") == "off"


async def killed_and_gone(pid: int, data_dir: Path) -> None:
    """A kill takes effect later than it returns; until then the killed server may still answer."""
    os.kill(pid, signal.SIGKILL)
    await until_async(lambda: not works_in(pid, data_dir / "postgres"), "the killed server is gone")


async def test_a_killed_server_comes_back_at_the_same_url(tmp_path: Path) -> None:
    async with a_server(tmp_path) as postgres:
        await ask(postgres.url, "CREATE TABLE kept AS SELECT 7 AS n")
        for _ in range(3):
            killed = postmaster_pid(tmp_path)
            async with connected(postgres.url):  # a session of the killed server holds its shared memory for a moment
                await killed_and_gone(killed, tmp_path)
                assert await ask_until_answered(postgres.url, "SELECT n FROM kept") == 7
            assert postmaster_pid(tmp_path) != killed
    assert not pids_in(tmp_path / "postgres")


async def test_killing_the_service_ends_the_server_and_the_next_start_works(tmp_path: Path) -> None:
    with a_service(tmp_path) as (service, url):
        await ask(url, "CREATE TABLE kept AS SELECT 7 AS n")
        service.kill()
        service.wait(timeout=DEADLINE_S)
        await until_async(lambda: not pids_in(tmp_path / "postgres"), "postgres ended")
    async with a_server(tmp_path) as postgres:
        assert await ask(postgres.url, "SELECT n FROM kept") == 7


@pytest.mark.parametrize("sign", ["postgres.new", "postgres.new/base/5", "postgres", "postgres/postmaster.pid"])
async def test_a_first_start_that_was_killed_anywhere_is_done_again(tmp_path: Path, sign: str) -> None:
    with starting_service(tmp_path) as service:
        await until_async((tmp_path / sign).exists, f"the start came to {sign}")
        service.kill()
    async with a_server(tmp_path) as postgres:
        assert await ask_until_answered(postgres.url, "SELECT 1") == 1


async def test_a_server_that_could_not_be_restarted_is_tried_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def failures() -> int:
        return sum("did not start" in record.getMessage() for record in caplog.records)

    async with a_server(tmp_path) as postgres:
        directory = socket_dir(postgres.url)
        directory.chmod(0o755)  # refused at each try
        await killed_and_gone(postmaster_pid(tmp_path), tmp_path)
        await until_async(lambda: failures() >= 2, "two tries failed")
        directory.chmod(0o700)
        assert await ask_until_answered(postgres.url, "SELECT 1") == 1
    pauses = [record.__dict__["pause_s"] for record in caplog.records if "started again" in record.getMessage()]
    assert pauses == sorted(pauses)
    assert len(set(pauses)) == len(pauses)


async def test_a_start_right_after_the_kill_does_not_wait_for_anybody(tmp_path: Path) -> None:
    with a_service(tmp_path) as (service, url):
        await ask(url, "CREATE TABLE kept AS SELECT n FROM generate_series(1, 200000) n")
        service.kill()
        service.wait(timeout=DEADLINE_S)
    async with a_server(tmp_path) as postgres:
        assert await ask_until_answered(postgres.url, "SELECT count(*) FROM kept") == 200000


async def test_a_second_service_is_told_of_the_first(tmp_path: Path) -> None:
    with a_service(tmp_path) as (first, _):
        second = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "tests.store.embedded_service", tmp_path],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, timeout=DEADLINE_S, check=True,
        )  # fmt: skip
        assert f"in use by process {first.pid}" in json.loads(second.stdout)["error"]


@contextmanager
def an_orphan(data_dir: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server that outlived its service, as where there is no death signal: same data, same socket, no launcher."""
    from fabric_manager.store.embedded.quarters import Mode, Quarters  # noqa: PLC0415
    from fabric_manager.store.embedded.server_settings import server_arguments  # noqa: PLC0415

    binaries = find_binaries()
    mode = Mode.NAMESPACE if os.geteuid() == 0 else Mode.SELF
    quarters = Quarters(mode=mode, uid=os.geteuid(), gid=os.getegid(), home=data_dir, binaries=binaries)
    socket_dir(url).mkdir(mode=0o700)
    arguments = server_arguments(
        pgdata=data_dir / "postgres", socket_dir=socket_dir(url), major=binaries.major, durable=False
    )
    with (data_dir / "orphan.log").open("wb") as log:
        command = quarters.command(binaries.postgres, *arguments)
        orphan = subprocess.Popen(command, stdout=log, stderr=log, env=child_environment(os.environ))
    try:
        until((socket_dir(url) / ".s.PGSQL.5432").exists, "the orphan listens")
        yield orphan
    finally:
        orphan.kill()
        orphan.wait(timeout=DEADLINE_S)
        shutil.rmtree(socket_dir(url), ignore_errors=True)


async def made(data_dir: Path) -> str:
    async with a_server(data_dir) as postgres:
        return postgres.url


async def test_a_healthy_server_is_adopted_watched_and_stopped(tmp_path: Path) -> None:
    url = await made(tmp_path)
    with an_orphan(tmp_path, url) as orphan:
        await ask_until_answered(url, "SELECT 1")
        async with a_server(tmp_path) as postgres:
            assert postmaster_pid(tmp_path) == orphan.pid
            assert await ask(postgres.url, "SELECT 1") == 1
        assert orphan.wait(timeout=DEADLINE_S) == 0
    assert not pids_in(tmp_path / "postgres")


async def test_an_adopted_server_that_dies_is_replaced_at_the_same_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TemporaryDirectory(prefix="fm-xdg-", dir="/tmp") as session:
        monkeypatch.setenv("XDG_RUNTIME_DIR", session)
        url = await made(tmp_path)
        assert socket_dir(url).parent == Path(session)
        monkeypatch.delenv("XDG_RUNTIME_DIR")  # the second service is started from elsewhere, as by cron
        with an_orphan(tmp_path, url) as orphan:
            await ask_until_answered(url, "SELECT 1")
            async with a_server(tmp_path) as postgres:
                orphan.kill()
                orphan.wait(timeout=DEADLINE_S)
                assert await ask_until_answered(url, "SELECT 1") == 1
                assert postgres.url == url
                assert postmaster_pid(tmp_path) != orphan.pid


async def test_a_server_that_is_going_is_waited_for(tmp_path: Path) -> None:
    url = await made(tmp_path)
    with an_orphan(tmp_path, url) as orphan:
        await ask_until_answered(url, "SELECT 1")
        async with connected(url):
            orphan.send_signal(signal.SIGTERM)  # "smart": it stays while this session lives, and takes no other
            starting = asyncio.create_task(a_started(tmp_path))
            assert await refusal(url) == "the database system is shutting down"
            assert not starting.done()
            assert orphan.poll() is None
        postgres = await starting
        assert await ask(postgres.url, "SELECT 1") == 1
        assert postmaster_pid(tmp_path) != orphan.pid
        await postgres.stop()


async def refusal(url: str) -> str:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await ask(url, "SELECT 1")
            except asyncpg.PostgresError as error:
                return str(error)


async def a_started(data_dir: Path) -> EmbeddedPostgres:
    postgres = a_server(data_dir)
    await postgres.start()
    return postgres


async def test_a_server_that_refuses_our_password_is_left_alone(tmp_path: Path) -> None:
    url = await made(tmp_path)
    with an_orphan(tmp_path, url) as orphan:
        await ask_until_answered(url, "SELECT 1")
        (tmp_path / "postgres.password").write_text("another")
        with pytest.raises(LauncherError, match=r"postgres\.password"):
            await a_server(tmp_path).start()
        assert orphan.poll() is None
        assert await ask(url, "SELECT 1") == 1


@contextmanager
def a_stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as stranger:
        yield stranger


async def test_a_stale_pid_file_that_names_a_stranger_does_not_block(tmp_path: Path) -> None:
    await made(tmp_path)
    with a_stranger() as stranger:
        pid_file = tmp_path / "postgres" / "postmaster.pid"
        pid_file.write_text(f"{stranger.pid}\n{tmp_path}/postgres\n1\n5432\n/tmp\n\n")
        async with a_server(tmp_path) as postgres:
            assert await ask(postgres.url, "SELECT 1") == 1
        assert stranger.poll() is None


async def test_an_initdb_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    half = tmp_path / "postgres.new" / "base"
    half.mkdir(parents=True)
    (half.parent / "PG_VERSION").write_text("18\n")  # initdb writes it first, so it proves nothing
    async with a_server(tmp_path) as postgres:
        assert await ask(postgres.url, "SELECT 1") == 1
    assert not (tmp_path / "postgres.new").exists()


async def test_an_empty_directory_in_the_databases_place_is_filled(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir(mode=0o700)
    async with a_server(tmp_path) as postgres:
        assert await ask(postgres.url, "SELECT 1") == 1


async def test_somebody_elses_files_in_the_databases_place_are_kept(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "thesis.txt").touch()
    with pytest.raises(LauncherError, match="move it away"):
        await a_server(tmp_path).start()
    assert (tmp_path / "postgres" / "thesis.txt").exists()


async def test_data_of_another_release_is_refused_with_both_releases_named(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("12\n")
    with pytest.raises(LauncherError, match=f"PostgreSQL 12.* {find_binaries().major}"):
        await a_server(tmp_path).start()


async def test_a_lost_password_is_said_and_nothing_is_made_anew(tmp_path: Path) -> None:
    await made(tmp_path)
    (tmp_path / "postgres.password").unlink()
    with pytest.raises(LauncherError, match="restore it"):
        await a_server(tmp_path).start()
    assert not (tmp_path / "postgres.password").exists()


async def test_a_server_that_cannot_start_ends_the_start_with_its_own_words(tmp_path: Path) -> None:
    await made(tmp_path)
    shutil.rmtree(tmp_path / "postgres" / "global")
    with pytest.raises(LauncherError, match="pg_control"):
        await a_server(tmp_path).start()
    assert not pids_in(tmp_path / "postgres")


@pytest.mark.parametrize("wrong", ["mode", "file", "link"])
async def test_a_runtime_directory_that_is_not_our_own_is_refused_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    trap = socket_directory(tmp_path, uid=os.geteuid(), xdg_runtime_dir=None)
    match wrong:
        case "mode":
            trap.mkdir()
            trap.chmod(0o755)
        case "file":
            trap.touch()
        case _:
            trap.symlink_to(tmp_path)
    try:
        with pytest.raises(LauncherError, match="0700"):
            await a_server(tmp_path).start()
        assert trap.lstat()
    finally:
        trap.rmdir() if wrong == "mode" else trap.unlink()


def test_the_runtime_directory_of_the_session_is_preferred_while_it_is_short_and_ours(tmp_path: Path) -> None:
    ours = os.geteuid()
    short = Path("/tmp") / f"fm-xdg-{os.getpid()}"
    short.mkdir(mode=0o700)
    try:
        assert socket_directory(tmp_path, uid=ours, xdg_runtime_dir=str(short)).parent == short
        assert socket_directory(tmp_path, uid=ours + 1, xdg_runtime_dir=str(short)).parent == Path("/tmp")
    finally:
        short.rmdir()
    for useless in (None, "", "/nowhere", str(tmp_path / ("x" * 90)), f"{tmp_path},/tmp"):
        assert socket_directory(tmp_path, uid=ours, xdg_runtime_dir=useless).parent == Path("/tmp")


async def test_no_port_is_opened(tmp_path: Path) -> None:
    async with a_server(tmp_path) as postgres:
        assert await ask(postgres.url, "SELECT inet_server_addr() IS NULL AND inet_server_port() IS NULL")
        assert not tcp_sockets(postmaster_pid(tmp_path))


def tcp_sockets(pid: int) -> set[str]:
    open_files = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()}
    tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    lines = [line for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return open_files & {f"socket:[{line.split()[9]}]" for line in lines}


def test_the_log_is_bounded_and_keeps_one_earlier_part(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    bound_log(log)  # there is none yet
    with log.open("ab") as server:
        server.write(b"old\n" * 100)
        server.flush()
        bound_log(log, bytes_max=1000)
        assert log.exists()
        assert not (tmp_path / "postgres.log.1").exists()
        bound_log(log, bytes_max=10)
        server.write(b"new\n")
    assert log.read_bytes() == b"new\n"
    assert (tmp_path / "postgres.log.1").read_bytes() == b"old\n" * 100
    assert last_lines(log) == "new"
