"""The rack's process: a socket around the state machine, with time, kept state and faults on the wire."""

import asyncio
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from fabric_manager.southbound.simulator.clock import RackClock
from fabric_manager.southbound.simulator.codes import BACKGROUND, Code
from fabric_manager.southbound.simulator.commands import Reply, execute, pretend
from fabric_manager.southbound.simulator.faults import FaultKind, FaultRule
from fabric_manager.southbound.simulator.journal import Journal
from fabric_manager.southbound.simulator.keeping import Keeping
from fabric_manager.southbound.simulator.rack import Rack
from fabric_manager.southbound.simulator.sideband import Sideband
from fabric_manager.southbound.simulator.topology import RackPlan, read_rack_file
from fabric_manager.southbound.simulator.wire import LINE_BYTES_MAX, LOOPBACK, RackEndpoint

log = logging.getLogger(__name__)

REQUESTS_IN_FLIGHT_MAX = 256  # per connection
BEFORE = (FaultKind.DELAY,)
INSTEAD = (FaultKind.DROP_BEFORE, FaultKind.REFUSE, FaultKind.BUSY, FaultKind.LIE)
AFTER = (FaultKind.DROP_AFTER, FaultKind.LATE_ANSWER, FaultKind.DUPLICATE)
Request = dict[str, Any]
Send = Callable[[Reply], None]


async def serve_rack(
    *, state_dir: Path, rack_file: Path, seed: int | None, listen: str = LOOPBACK, announce: str | None = None
) -> None:
    """Run until SIGTERM or SIGINT. `seed` None takes the rack file's. `announce` is how callers reach `listen`.

    Raises StateDirectoryInUseError and RackFileError before it listens.
    """
    keeping = Keeping(state_dir)
    try:
        plan = read_rack_file(rack_file)
        server = RackServer(plan, seed=plan.seed if seed is None else seed, keeping=keeping)
        await _serve(server, state_dir=state_dir, listen=listen, announce=announce or listen)
    finally:
        keeping.close()


async def _serve(server: "RackServer", *, state_dir: Path, listen: str, announce: str) -> None:
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    listener = await asyncio.start_server(server.connected, listen, 0, limit=LINE_BYTES_MAX)
    try:
        port = listener.sockets[0].getsockname()[1]
        endpoint = RackEndpoint(pid=os.getpid(), port=port, token=server.token, boot=server.boot, address=announce)
        endpoint.write(state_dir)
        log.info("simulated rack ready", extra={"port": port, "boot": server.boot})
        await stop.wait()
    finally:
        listener.close()
        await server.close()


class RackServer:
    def __init__(self, plan: RackPlan, *, seed: int, keeping: Keeping) -> None:
        self.token = secrets.token_urlsafe(24)
        self.boot = keeping.values().get("boot", 0) + 1
        self._plan = plan
        self._seed = seed
        self._keeping = keeping
        self._connections: set[asyncio.Task[None]] = set()
        self._load()

    def _load(self) -> None:
        """Build the rack, and put it where the kept state says it was."""
        kept = dict(self._keeping.values())
        kept.pop("boot", None)
        settings = kept.pop("settings", {"faults": {"rules": [], "knobs": []}, "speed": 1.0})
        # Each boot draws other numbers, and the same ones whenever it is repeated.
        self._rack = Rack(self._plan, seed=self._seed * 1_000_003 + self.boot)
        self._clock = RackClock(real_s=time.monotonic, speed=settings["speed"])
        self._journal = Journal()
        self._sideband = Sideband(
            rack=self._rack,
            clock=self._clock,
            journal=self._journal,
            identity={"pid": os.getpid(), "boot": self.boot},
        )
        self._rack.restore(kept)
        self._rack.faults.restore(settings["faults"])
        self._rack.restart("*", volatile=False, now_s=self._clock.now_s())
        self._save()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if await self._admitted(reader, writer):
                await self._converse(reader, writer)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.info("connection dropped", extra={"reason": repr(error)})  # not one of ours, or gone
        except asyncio.CancelledError:
            pass  # the rack stops; asyncio would print this as an error of ours
        finally:
            self._connections.discard(task)
            writer.close()

    async def close(self) -> None:
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _admitted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        token = str(orjson.loads(await reader.readline()).get("token", ""))
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return False
        writer.write(orjson.dumps({"welcome": self.boot}) + b"\n")
        return True

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        in_flight: set[asyncio.Task[None]] = set()  # requests that a fault holds up; the others pass them
        try:
            while line := await reader.readline():
                request = orjson.loads(line)
                task = asyncio.create_task(self._handle(request, _sender(writer, request["tag"])))
                in_flight.add(task)
                task.add_done_callback(in_flight.discard)
                if len(in_flight) >= REQUESTS_IN_FLIGHT_MAX:
                    await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in in_flight:
                task.cancel()

    async def _handle(self, request: Request, send: Send) -> None:
        try:
            await self._answer(request, send)
        except Exception:  # the rack outlives a bug in one command, as firmware should
            log.exception("command failed", extra={"op": request.get("op")})
            send(Reply(Code.INTERNAL_ERROR, detail="a bug of the simulator; see rack.log"))

    async def _answer(self, request: Request, send: Send) -> None:
        try:
            if request["channel"] == "control":
                return send(self._control(str(request["op"]), dict(request["args"])))
            opcode, component, args = int(request["op"], 16), str(request["component"]), dict(request["args"])
        except (KeyError, TypeError, ValueError) as error:
            return send(Reply(Code.INVALID_INPUT, detail=f"cannot read the request: {error}"))
        if delay := self._fault(BEFORE, opcode, component):
            await asyncio.sleep(delay.seconds)
        instead = self._fault(INSTEAD, opcode, component)
        reply = self._hardware(opcode, component, args, instead)
        after = self._fault(AFTER, opcode, component)
        self._note(request, reply)
        self._save()
        if reply is None or (after and after.kind is FaultKind.DROP_AFTER):
            return None
        if after is None or after.kind is FaultKind.DUPLICATE:
            send(reply)
        if after:
            await asyncio.sleep(after.seconds)
            send(reply)
        return None

    def _control(self, op: str, args: Request) -> Reply:
        if op == "reset":
            self._keeping.clear()
            self._load()
            return Reply(Code.SUCCESS)
        self._rack.advance(self._clock.now_s())
        reply = self._sideband.execute(op, args)
        self._save()
        return reply

    def _hardware(self, opcode: int, component: str, args: Request, fault: FaultRule | None) -> Reply | None:
        """Execute, unless `fault` has something else happen instead. None: no answer."""
        now_s = self._clock.now_s()
        self._rack.advance(now_s)
        match fault.kind if fault else None:
            case FaultKind.DROP_BEFORE:
                return None
            case FaultKind.REFUSE:
                assert fault is not None
                code = Code.INVALID_INPUT if fault.code is None else fault.code
                return Reply(code, detail="a fault rule refuses it")
            case FaultKind.BUSY:
                return Reply(Code.BUSY, detail="a fault rule says busy")
            case FaultKind.LIE:
                return pretend(self._rack, opcode, component, args, now_s=now_s)
            case _:
                reply = execute(self._rack, opcode, component, args, now_s=now_s)
        if reply.code in (Code.SUCCESS, Code.BACKGROUND_STARTED):
            self._restart_after(opcode, component, now_s=now_s)
        return reply

    def _restart_after(self, opcode: int, component: str, *, now_s: float) -> None:
        rule = self._fault((FaultKind.RESTART,), opcode, component)
        if rule is None:
            return
        part = self._rack.component(component)
        half_s = part.slot.left_s(now_s) / 2 if opcode in BACKGROUND else 0.0
        self._rack.agenda.at(
            now_s + half_s,
            owner=part.plan.name,
            kind="restart",
            action=lambda at_s: self._rack.restart(component, volatile=rule.volatile, now_s=at_s),
        )
        self._rack.advance(now_s)

    def _fault(self, kinds: tuple[FaultKind, ...], opcode: int, component: str) -> FaultRule | None:
        if not self._rack.faults.rules:
            return None
        words = self._rack.words_of(component)
        return self._rack.faults.take(kinds, opcode=opcode, words=words)

    def _note(self, request: Request, reply: Reply | None) -> None:
        self._journal.note(
            at_s=self._clock.now_s(),
            channel=request["channel"],
            op=request["op"],
            component=request["component"],
            args=request["args"],
            code=None if reply is None else reply.code,
            result={} if reply is None else reply.result,
        )

    def _save(self) -> None:
        self._keeping.save(self._changes())

    def _changes(self) -> Iterator[tuple[str, Any]]:
        yield "boot", self.boot
        yield "settings", {"faults": self._rack.faults.snapshot(), "speed": self._clock.speed}
        yield from self._rack.drain_changes()


def _sender(writer: asyncio.StreamWriter, tag: int) -> Send:
    def send(reply: Reply) -> None:
        answer = {"tag": tag, "code": int(reply.code), "result": reply.result, "detail": reply.detail}
        if not writer.is_closing():
            writer.write(orjson.dumps(answer) + b"\n")

    return send
