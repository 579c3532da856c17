"""The one background operation a component can run at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fabric_manager.southbound.simulator.agenda import Agenda
from fabric_manager.southbound.simulator.codes import Code, CommandError, Opcode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    opcode: Opcode
    ld_id: int | None
    started_s: float
    duration_s: float


class BackgroundSlot:
    """Accepts, runs, ends; 0002h tells how it goes. A restart forgets it, as real components do."""

    def __init__(self, *, owner: str, agenda: Agenda) -> None:
        self._owner = owner
        self._agenda = agenda
        self._running: _Operation | None = None
        self._last: tuple[int, int, int | None] = (0, 0, None)  # opcode, return code, LD

    @property
    def running_ld(self) -> int | None:
        """The LD that the operation in progress addresses."""
        return self._running.ld_id if self._running else None

    def refuse_if_busy(self) -> None:
        if self._running:
            raise CommandError(Code.BUSY, f"{self._owner} runs {self._running.opcode:04x}h in the background")

    def left_s(self, now_s: float) -> float:
        """How long the operation in progress still takes."""
        return max(0.0, self._running.started_s + self._running.duration_s - now_s) if self._running else 0.0

    def start(
        self, opcode: Opcode, *, ld_id: int | None, duration_s: float, now_s: float, finish: Callable[[float], Code]
    ) -> None:
        """`finish` does the work at the end and gives the return code that 0002h will show."""
        self.refuse_if_busy()
        self._running = _Operation(opcode=opcode, ld_id=ld_id, started_s=now_s, duration_s=duration_s)
        self._agenda.at(
            now_s + duration_s, owner=self._owner, kind="background", action=lambda at_s: self._end(finish(at_s))
        )

    def abort(self) -> bool:
        """End a running sanitize with Aborted. False when there is nothing to abort."""
        if self._running is None:
            return False
        if self._running.opcode is not Opcode.SANITIZE:
            raise CommandError(Code.UNSUPPORTED, f"{self._running.opcode:04x}h cannot be aborted")
        self._agenda.drop(owner=self._owner, kind="background")
        self._end(Code.ABORTED)
        return True

    def forget(self) -> None:
        self._agenda.drop(owner=self._owner, kind="background")
        self._running, self._last = None, (0, 0, None)

    def pretend(self, opcode: Opcode, *, ld_id: int | None) -> None:
        """Show `opcode` as done and well, without its having run: how lying firmware looks from outside."""
        self.refuse_if_busy()
        self._last = (opcode, Code.SUCCESS, ld_id)

    def status(self, now_s: float) -> dict[str, Any]:
        if (run := self._running) is None:
            opcode, return_code, ld_id = self._last
            percent = 100 if opcode else 0
            return _status(False, percent=percent, opcode=opcode, return_code=return_code, ld_id=ld_id)
        done = (now_s - run.started_s) / run.duration_s if run.duration_s else 1.0
        return _status(True, percent=min(99, int(done * 100)), opcode=run.opcode, return_code=0, ld_id=run.ld_id)

    def _end(self, code: Code) -> None:
        assert self._running is not None
        self._last = (self._running.opcode, code, self._running.ld_id)
        self._running = None


def _status(in_progress: bool, *, percent: int, opcode: int, return_code: int, ld_id: int | None) -> dict[str, Any]:
    return {
        "in_progress": in_progress,
        "percent": percent,
        "opcode": int(opcode),
        "return_code": int(return_code),
        "ld_id": ld_id,
    }
