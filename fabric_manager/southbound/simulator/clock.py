"""The rack's time: real time, faster, slower, or standing still until it is stepped."""

from collections.abc import Callable


class RackClock:
    """Seconds since an arbitrary start; never goes back. Speed 0 stands still until `step`."""

    def __init__(self, *, real_s: Callable[[], float], speed: float = 1.0) -> None:
        self._real_s = real_s
        self._since_s = real_s()
        self._base_s = 0.0
        self._speed = speed

    @property
    def speed(self) -> float:
        return self._speed

    def now_s(self) -> float:
        return self._base_s + (self._real_s() - self._since_s) * self._speed

    def set_speed(self, speed: float) -> None:
        if speed < 0:
            raise ValueError(f"speed is {speed}; time does not run backwards")
        self._base_s, self._since_s = self.now_s(), self._real_s()
        self._speed = speed

    def step(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"step is {seconds} s; time does not run backwards")
        self._base_s += seconds
