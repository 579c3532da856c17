"""A TCP proxy that can go silent, cut connections, or refuse them: the network between service and database."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Forwards 127.0.0.1:`port` to `target`. `silent` holds every byte, as a partition does; nothing is lost by it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.port = 0
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()
        self._cut()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, upstream_writer}
        try:
            await asyncio.gather(
                self._pump(reader, upstream_writer), self._pump(upstream_reader, writer), return_exceptions=True
            )
        finally:
            for each in (writer, upstream_writer):
                self._writers.discard(each)
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            await self._open.wait()
            writer.write(chunk)
            await writer.drain()
        writer.close()

    def _cut(self) -> None:
        for writer in list(self._writers):
            with suppress(OSError):
                writer.transport.abort()

    def _call(self, act: object, *args: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(act, *args)  # type: ignore[arg-type]

    def go_silent(self) -> None:
        self._call(self._open.clear)

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._refusing = True
        self._call(self._cut)

    def heal(self) -> None:
        self._refusing = False
        self._call(self._open.set)


@contextmanager
def a_proxy(host: str, port: int) -> Iterator[Proxy]:
    """Runs in a thread of its own, so that a test need not be asynchronous."""
    proxy = Proxy((host, port))
    started, stopping = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(proxy.serve(started, stopping)))
    thread.start()
    assert started.wait(10)
    try:
        yield proxy
    finally:
        proxy._call(stopping.set)
        thread.join()
