"""What goes wrong on purpose: rules that act on single commands, and knobs that make firmware careless."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from fabric_manager.southbound.simulator.codes import Code, Opcode
from fabric_manager.southbound.simulator.memory import ByteStore, Run

RULES_MAX = 1000


class FaultKind(StrEnum):
    DELAY = "delay"  # wait `seconds`, then execute and answer
    DROP_BEFORE = "drop_before"  # not executed, not answered
    DROP_AFTER = "drop_after"  # executed, not answered
    LATE_ANSWER = "late_answer"  # executed at once, answered after `seconds`
    DUPLICATE = "duplicate"  # executed once, answered at once and again after `seconds`
    REFUSE = "refuse"  # not executed, answered with `code`
    BUSY = "busy"  # not executed, answered with Busy
    LIE = "lie"  # not executed, answered with success
    RESTART = "restart"  # executed; the component restarts halfway its background operation, or at once
    SANITIZE_FAIL = "sanitize_fail"  # an erasure ends with `code` and has erased nothing


class Knob(StrEnum):
    NO_VPPB_CHECK = "no_vppb_check"  # binds over a vPPB that is bound already
    NO_BIND_CONFLICT_CHECK = "no_bind_conflict_check"  # binds an LD that another vPPB has
    NO_LD_RANGE_CHECK = "no_ld_range_check"  # binds an LD that does not exist
    NO_BOUND_CHECK = "no_bound_check"  # erases or re-carves LDs that are bound
    LATE_BIND_ERRORS = "late_bind_errors"  # accepts every bind and unbind; only 0002h tells of the refusal
    SKIP_SANITIZE = "skip_sanitize"  # reports every erasure as done, and leaves the bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """Acts on commands to `component` (name or serial) with `opcode`; None is any. `count` None: for ever."""

    kind: FaultKind
    opcode: int | None = None
    component: str | None = None
    count: int | None = 1
    seconds: float = 0.0  # real time: the wire knows nothing of the rack's clock
    code: int | None = None
    volatile: bool = False  # of a restart: bindings and extents are forgotten

    def __post_init__(self) -> None:
        if not isinstance(self.opcode, int | None) or not isinstance(self.component, str | None):
            raise TypeError("opcode is a number and component a text, or None")
        if self.kind is FaultKind.SANITIZE_FAIL and self.code is not None:
            Code(self.code)  # ValueError for one that no device answers
        if self.seconds < 0 or (self.count is not None and self.count < 1):
            raise ValueError("a rule acts at least once, and not in the past")

    def matches(self, *, opcode: int, words: Collection[str]) -> bool:
        return self.opcode in (None, opcode) and (self.component is None or self.component in words)


def rule_from_json(item: dict[str, Any]) -> FaultRule:
    """Raises TypeError or ValueError on unknown fields and kinds."""
    return FaultRule(**{**item, "kind": FaultKind(item.get("kind", ""))})


class FaultPlan:
    def __init__(self) -> None:
        self.rules: list[FaultRule] = []
        self.knobs: frozenset[Knob] = frozenset()

    def add(self, rule: FaultRule) -> None:
        if len(self.rules) >= RULES_MAX:
            raise ValueError(f"{RULES_MAX} rules are enough")
        self.rules.append(rule)

    def take(self, kinds: Collection[FaultKind], *, opcode: int, words: Collection[str]) -> FaultRule | None:
        """The first rule of these kinds that matches, counted down by one."""
        for i, rule in enumerate(self.rules):
            if rule.kind in kinds and rule.matches(opcode=opcode, words=words):
                if rule.count is not None:
                    self.rules[i : i + 1] = [replace(rule, count=rule.count - 1)] if rule.count > 1 else []
                return rule
        return None

    def erase(self, store: ByteStore, runs: Iterable[Run], *, opcode: Opcode, words: Collection[str]) -> Code:
        """Erase `runs`, unless a rule or a knob has it otherwise; the code the device reports."""
        if rule := self.take((FaultKind.SANITIZE_FAIL,), opcode=opcode, words=words):
            return Code.INTERNAL_ERROR if rule.code is None else Code(rule.code)
        if Knob.SKIP_SANITIZE not in self.knobs:
            store.zero(runs)
        return Code.SUCCESS

    def snapshot(self) -> dict[str, Any]:
        return {"rules": [asdict(rule) for rule in self.rules], "knobs": sorted(self.knobs)}

    def restore(self, kept: dict[str, Any]) -> None:
        rules = [rule_from_json(item) for item in kept["rules"]]
        if len(rules) > RULES_MAX:
            raise ValueError(f"{RULES_MAX} rules are enough")
        self.rules, self.knobs = rules, frozenset(Knob(knob) for knob in kept["knobs"])
