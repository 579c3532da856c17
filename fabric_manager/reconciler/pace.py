"""How often and how long, in seconds. Settings; tests use milliseconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A successor waits `ttl_s` + `command_s` after the last renewal, so an owner sends nothing later than `ttl_s`."""

    ttl_s: float = 5.0
    renew_s: float = 1.0
    command_s: float = 2.0  # the longest wait for an answer from hardware
    scan_s: float = 10.0  # between two comparisons of hardware and database
    poll_s: float = 0.5  # between two looks for due work when nobody wakes the loop
    backoff_s: float = 0.05  # doubled with each attempt
    backoff_s_max: float = 5.0
    attempts_max: int = 20
