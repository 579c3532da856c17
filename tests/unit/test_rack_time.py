"""The rack's clock, its agenda and the one background slot."""

import pytest

from fabric_manager.southbound.simulator.agenda import Agenda
from fabric_manager.southbound.simulator.background import BackgroundSlot
from fabric_manager.southbound.simulator.clock import RackClock
from fabric_manager.southbound.simulator.codes import Code, CommandError, Opcode


def test_time_goes_faster_stands_still_and_is_stepped() -> None:
    real = [100.0]
    clock = RackClock(real_s=lambda: real[0])
    real[0] += 2
    clock.set_speed(10)
    real[0] += 3
    assert clock.now_s() == 32
    clock.set_speed(0)
    real[0] += 1000
    clock.step(5)
    assert clock.now_s() == 37


@pytest.mark.parametrize("backwards", [lambda c: c.set_speed(-1), lambda c: c.step(-1)])
def test_time_does_not_run_backwards(backwards) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="backwards"):
        backwards(RackClock(real_s=lambda: 0.0))


def test_what_an_action_plans_runs_too_when_it_is_due() -> None:
    agenda, ran = Agenda(), []

    def first(at_s: float) -> None:
        ran.append(("first", at_s))
        agenda.at(at_s + 1, owner="b", kind="x", action=lambda at_s: ran.append(("second", at_s)))

    agenda.at(1, owner="a", kind="x", action=first)
    assert agenda.run_due(0.5) == set()
    assert agenda.run_due(10) == {"a", "b"}
    assert ran == [("first", 1), ("second", 2)]


def test_dropping_leaves_what_others_planned() -> None:
    agenda, ran = Agenda(), []
    for owner, kind in (("a", "x"), ("a", "y"), ("b", "x")):
        agenda.at(1, owner=owner, kind=kind, action=lambda _, word=owner + kind: ran.append(word))  # type: ignore[misc]
    agenda.drop(owner="a", kind="x")
    agenda.run_due(1)
    assert ran == ["ay", "bx"]


def test_the_slot_runs_one_operation_and_then_tells_how_it_ended() -> None:
    agenda = Agenda()
    slot = BackgroundSlot(owner="d", agenda=agenda)
    assert slot.status(0)["opcode"] == 0
    slot.start(Opcode.SANITIZE, ld_id=3, duration_s=10, now_s=0, finish=lambda _: Code.INTERNAL_ERROR)
    with pytest.raises(CommandError) as busy:
        slot.start(Opcode.SANITIZE, ld_id=4, duration_s=1, now_s=1, finish=lambda _: Code.SUCCESS)
    assert busy.value.code is Code.BUSY
    assert (slot.status(5)["percent"], slot.left_s(4)) == (50, 6)
    agenda.run_due(10)
    assert slot.status(10) == {"in_progress": False, "percent": 100, "opcode": 0x4400, "return_code": 4, "ld_id": 3}
    slot.forget()
    assert slot.status(10)["opcode"] == 0


def test_nothing_to_abort_is_no_error_and_a_bind_cannot_be_aborted() -> None:
    agenda = Agenda()
    slot = BackgroundSlot(owner="s", agenda=agenda)
    assert slot.abort() is False
    slot.start(Opcode.BIND, ld_id=0, duration_s=1, now_s=0, finish=lambda _: Code.SUCCESS)
    with pytest.raises(CommandError):
        slot.abort()
