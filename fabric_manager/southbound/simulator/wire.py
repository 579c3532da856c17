"""How to speak to a rack's process: where it listens, and one connection with answers matched by tag."""

import asyncio
import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

ENDPOINT_FILE = "endpoint.json"
LINE_BYTES_MAX = 16 << 20
LOOPBACK = "127.0.0.1"


class NotConnectedError(Exception):
    """Nothing was sent."""


class NoAnswerError(Exception):
    """It was sent, and no answer came: too late, or the connection broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RackEndpoint:
    """`boot` counts the processes that have run on this directory; the token lets its readers in and nobody else.

    `address` is where callers find it: another container's has a name there.
    """

    pid: int
    port: int
    token: str
    boot: int
    address: str = LOOPBACK

    def write(self, state_dir: Path) -> None:
        fresh = state_dir / f"{ENDPOINT_FILE}.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(orjson.dumps(asdict(self)))
        fresh.replace(state_dir / ENDPOINT_FILE)


def read_endpoint(state_dir: Path) -> RackEndpoint:
    """Raises NotConnectedError when no rack has written one."""
    try:
        return RackEndpoint(**orjson.loads((state_dir / ENDPOINT_FILE).read_bytes()))
    except (OSError, orjson.JSONDecodeError, TypeError) as error:
        raise NotConnectedError(f"no simulated rack has announced itself in {state_dir}") from error


class Connection:
    """Requests may overlap. An answer that nobody waits for any more is counted and dropped."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stray_answers = 0
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listening = asyncio.create_task(self._listen())

    @property
    def is_open(self) -> bool:
        return not self._listening.done()

    async def ask(self, tag: int, request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Raises NotConnectedError before anything was sent, NoAnswerError after."""
        if not self.is_open:
            raise NotConnectedError("the rack closed the connection")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[tag] = answer
        try:
            self._writer.write(orjson.dumps({"tag": tag, **request}) + b"\n")
            async with asyncio.timeout(timeout_s):
                await self._writer.drain()
                return await answer
        except (TimeoutError, OSError) as error:
            raise NoAnswerError(f"no answer within {timeout_s} s: {error or 'timeout'}") from error
        finally:
            self._waiting.pop(tag, None)

    async def close(self) -> None:
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                self._take(orjson.loads(line))
        except (OSError, ValueError, KeyError, TypeError):
            pass  # an answer nobody can read is no answer
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError("the connection broke"))

    def _take(self, message: dict[str, Any]) -> None:
        answer = self._waiting.get(message["tag"])
        if answer is None or answer.done():
            self.stray_answers += 1
        else:
            answer.set_result(message)


class Session:
    """Finds the rack by its endpoint file, connects when first used, and again after the rack went away."""

    def __init__(self, state_dir: Path, *, timeout_s: float) -> None:
        self._state_dir = state_dir
        self._timeout_s = timeout_s
        self._tag = 0
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._stray_before = 0  # of connections that are closed

    @property
    def stray_answers(self) -> int:
        """Answers that came too late or twice, and were dropped."""
        return self._stray_before + (self._connection.stray_answers if self._connection else 0)

    async def connect(self) -> None:
        """Raises NotConnectedError. Does nothing when there is a connection."""
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                await self.close()
                self._connection = await _open(self._state_dir, timeout_s=self._timeout_s)

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to `request`. Raises NotConnectedError before anything was sent, NoAnswerError after."""
        await self.connect()
        assert self._connection is not None
        self._tag += 1
        return await self._connection.ask(self._tag, request, timeout_s=self._timeout_s)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection:
            self._stray_before += connection.stray_answers
            await connection.close()


async def _open(state_dir: Path, *, timeout_s: float) -> Connection:
    endpoint = read_endpoint(state_dir)  # anew each time: a restarted rack listens elsewhere
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(endpoint.address, endpoint.port, limit=LINE_BYTES_MAX)
            writer.write(orjson.dumps({"token": endpoint.token}) + b"\n")
            welcome = await reader.readline()
    except (TimeoutError, OSError, ValueError) as error:
        raise NotConnectedError(f"the simulated rack in {state_dir} does not answer: {error or 'timeout'}") from error
    # Another program may have got the port of a rack that is gone.
    if not welcome.startswith(b'{"welcome"'):
        writer.close()
        raise NotConnectedError(f"port {endpoint.port} of {endpoint.address} is not the simulated rack in {state_dir}")
    return Connection(reader, writer)
