"""One call, repeated until a service answers it or the time for that is over."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx

from fabric_manager.client.errors import ClientError, ProblemError, UnexpectedAnswerError, UnreachableError, problem_of
from fabric_manager.client.values import Document

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 15.0
PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 2.0
TRY_LATER = frozenset({429, 502, 503, 504})
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

QueryValue = str | int | Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request. `hold_s` is how long the service was asked to hold the answer back.

    `retry_s` None: the client's. `streamed`: the answer's body is read by the caller, who closes it.
    """

    method: str
    path: str
    query: Mapping[str, QueryValue] = field(default_factory=dict)
    body: Document | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hold_s: int = 0
    retry_s: float | None = None
    streamed: bool = False


class Transport:
    """Sends calls to the first of several equal services that answers, and stays with it.

    Every call of this client may be sent twice: the caller names the key, and node reports say what is.
    So a lost answer, 429 and 503 are met by asking again, until `retry_s` (and the call's hold) are over.
    """

    def __init__(self, servers: Sequence[str], token: str | None, *, retry_s: float, random: Random) -> None:
        self._servers = [_checked(server) for server in servers]
        if not self._servers:
            raise ValueError("name at least one server")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ValueError("a token is printable ASCII on one line")
        self._at = 0
        self._retry_s = retry_s
        self._random = random
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            trust_env=not all(httpx.URL(server).host in LOOPBACK for server in self._servers),  # no proxy to ourselves
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call) -> httpx.Response:
        """The answer below 400. Raises ProblemError, or UnreachableError when nobody answered in time."""
        loop = asyncio.get_running_loop()
        retry_s = self._retry_s if call.retry_s is None else call.retry_s
        give_up_at = loop.time() + retry_s + call.hold_s
        for attempt in itertools.count(1):
            failure: ClientError
            pause_s: float
            try:
                response = await self.send_once(call)
            except UnreachableError as error:
                self._at = (self._at + 1) % len(self._servers)
                round_number, place = divmod(attempt, len(self._servers))
                failure, pause_s = error, self._backoff_s(round_number) if place == 0 else 0
            else:
                if response.status_code not in TRY_LATER:
                    return _accepted(response)
                failure, pause_s = self._later(problem_of(response), attempt)
            if attempt >= len(self._servers) and loop.time() + pause_s >= give_up_at:
                raise failure
            await asyncio.sleep(pause_s)
        raise AssertionError("unreachable: the loop ends only by return or raise")

    async def send_once(self, call: Call) -> httpx.Response:
        """Whatever the current server answers, a refusal too. Raises UnreachableError."""
        server = self._servers[self._at]
        try:
            request = self._http.build_request(
                call.method,
                server + call.path,
                params=_written(call.query),
                json=call.body,
                headers=dict(call.headers),
                timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=ANSWER_TIMEOUT_S + call.hold_s),
            )
            response = await self._http.send(request, stream=call.streamed)
            if not response.is_success:
                await response.aread()
            return response
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise UnreachableError(self._servers, reason) from error

    def _later(self, problem: ProblemError, attempt: int) -> tuple[ClientError, float]:
        if problem.retry_after_ms is None:
            return problem, self._backoff_s(attempt)
        return problem, max(problem.retry_after_ms / 1000, PAUSE_FIRST_S)

    def _backoff_s(self, round_number: int) -> float:
        longest_s = min(PAUSE_FIRST_S * 2 ** min(round_number - 1, 10), PAUSE_MAX_S)
        jittered_s: float = longest_s * self._random.uniform(0.5, 1.0)
        return jittered_s


def json_of(response: httpx.Response) -> Any:
    """The body. Raises UnexpectedAnswerError when it is not JSON."""
    try:
        return response.json()
    except ValueError as error:
        raise UnexpectedAnswerError(f"{response.url} did not answer in JSON") from error


def _accepted(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    if response.status_code < 400:
        raise UnexpectedAnswerError(f"{response.url} answered {response.status_code} {response.reason_phrase}")
    raise problem_of(response)


def _checked(server: str) -> str:
    try:
        url = httpx.URL(server)
    except httpx.InvalidURL as error:
        raise ValueError(f"server {server!r}: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"server {server!r}: write it like http://127.0.0.1:8080")
    return server.rstrip("/")


def _written(query: Mapping[str, QueryValue]) -> httpx.QueryParams:
    """A parameter with several values is repeated; one that is None is left out."""
    return httpx.QueryParams({name: value for name, value in query.items() if value is not None})
