"""The HTTP server, without a will of its own about signals."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from fabric_manager.api.application import stop_waiting

DRAIN_S = 5
OPEN_FILES = 16_384


@asynccontextmanager
async def listening(app: FastAPI, *, host: str, port: int) -> AsyncIterator[str]:
    """Serve `app` until the block ends; answers the URL. `port` 0 picks a free one. Raises OSError with a sentence."""
    allow_many_sockets()
    listener = bound_socket(host, port)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=DRAIN_S
    )
    server = QuietServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield url_of(listener)
    finally:
        stop_waiting(app)
        server.should_exit = True
        await asyncio.wait([serving], timeout=DRAIN_S + 2)
        listener.close()


def allow_many_sockets() -> None:
    """Each listener and long poll is an open file; many systems allow 1024 unless a process asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class QuietServer(uvicorn.Server):
    """Signals are the service's: they stop more than HTTP."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bound_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only then
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
