"""Where numbers go on an axis, which of them get a tick, and how they are written."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["Axis", "axis", "number", "place", "short", "signed", "spread", "wall_time"]

_SMALL = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """From numbers to units of the picture."""

    low: float
    high: float
    log: bool
    start: float
    end: float
    ticks: tuple[tuple[float, str], ...]

    def __call__(self, value: float) -> float:
        share = (self._at(value) - self._at(self.low)) / (self._at(self.high) - self._at(self.low))
        return self.start + share * (self.end - self.start)

    def _at(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    def holds(self, value: float) -> bool:
        """Whether it can be drawn."""
        slack = 1e-9 * (abs(self.low) + abs(self.high))
        return math.isfinite(value) and self.low - slack <= value <= self.high + slack


def axis(
    values: Iterable[float],
    start: float,
    end: float,
    log: bool = False,
    most: int = 7,
    low: float | None = None,
    high: float | None = None,
) -> Axis:
    """An axis over all finite values with a little room, or from `low` to `high`; some `most` ticks.

    >>> [text for _, text in axis([0.3, 9.8], 0, 100).ticks]
    ['0', '2', '4', '6', '8', '10']
    >>> [text for _, text in axis([2, 900], 0, 100, log=True).ticks]
    ['2', '5', '10', '20', '50', '100', '200', '500']
    >>> [text for _, text in axis([1e-5, 3], 0, 100, log=True).ticks]
    ['10⁻⁵', '10⁻⁴', '0.001', '0.01', '0.1', '1']
    """
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    least, highest = (min(known), max(known)) if known else (1.0, 10.0) if log else (0.0, 1.0)
    low_end, high_end = least if low is None else low, highest if high is None else high
    if log:
        return _log_axis(low_end, high_end, start, end)
    if low_end >= high_end:
        pad = abs(low_end) / 10 or 1.0
        low_end, high_end = low_end - pad, high_end + pad
    room = 0.04 * (high_end - low_end)
    if low is None:
        low_end = 0.0 if 0 <= low_end < 0.3 * high_end else low_end - room
    if high is None:
        high_end = 0.0 if 0 >= high_end > 0.3 * low_end else high_end + room
    step = _nice((high_end - low_end) / most)
    first, last = math.ceil(low_end / step - 1e-6), math.floor(high_end / step + 1e-6)
    digits = next((d for d in range(20) if abs(step * 10**d - round(step * 10**d)) < 1e-6 * step * 10**d), 20)
    ticks = tuple((i * step, _plain(i * step, digits)) for i in range(first, last + 1))
    return Axis(low_end, high_end, False, start, end, ticks)


def _log_axis(low: float, high: float, start: float, end: float) -> Axis:
    if high / low < 1.5:
        low, high = low / 1.5, high * 1.5
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    powers = range(first, last + 1)
    some = [f * 10.0**e for e in range(first - 1, last + 2) for f in (1, 2, 5)]
    some = [tick for tick in some if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    if len(some) < 3:
        return replace(axis([], start, end, low=low, high=high), log=True)
    if len(some) <= 9:
        return Axis(low, high, True, start, end, tuple((tick, _power(tick)) for tick in some))
    every = -(-len(powers) // 7)
    return Axis(low, high, True, start, end, tuple((10.0**e, _power(10.0**e)) for e in powers[::every]))


def _power(value: float) -> str:
    exponent = math.floor(math.log10(value) + 1e-9)
    if -3 <= exponent <= 4:
        return f"{value:,.{max(0, -exponent)}f}"
    factor = round(value / 10.0**exponent)
    return ("" if factor == 1 else f"{factor}·") + "10" + str(exponent).translate(_SMALL)


def _nice(step: float) -> float:
    base = 10.0 ** math.floor(math.log10(step))
    return next(f * base for f in (1, 2, 5, 10) if f * base >= step * (1 - 1e-9))


def _plain(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    text = text.replace("-", "−")
    return "0" if float(text.replace(",", "").replace("−", "-")) == 0 else text


def number(value: object) -> float:
    """A number from a file; NaN for everything else, and for what is too large to be one that was measured.

    >>> number("1.5"), number(None), number("x"), number(True), number(10**400), number(1e308)
    (1.5, nan, nan, nan, nan, nan)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return found if abs(found) < 1e100 else math.nan


def place(value: float, digits: int = 2) -> str:
    """With so many decimals; a dash where there is no number."""
    return "–" if math.isnan(value) else _plain(value, digits)


def short(value: float) -> str:
    """Four significant digits or so, without zeros behind them.

    >>> short(0.000123), short(4.85203), short(1234567.0), short(128.0), short(math.nan)
    ('1.23·10⁻⁴', '4.852', '1,234,567', '128', '–')
    """
    if math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)) + 1e-12)
    if -3 <= size <= 15:
        text = f"{value:,.{max(0, 3 - size)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text.replace("-", "−")
    return f"{value / 10.0**size:.2f}·10{str(size).translate(_SMALL)}".replace("-", "−")


def signed(value: float, digits: int = 2) -> str:
    """With its sign, a true minus.

    >>> signed(-0.5), signed(2), signed(-0.001)
    ('−0.50', '+2.00', '0.00')
    """
    if math.isnan(value):
        return "–"
    if round(value, digits) == 0:
        return f"{0:.{digits}f}"
    return f"{value:+,.{digits}f}".replace("-", "−")


def spread(value: float, digits: int = 2) -> str:
    """± and the number; nothing where there is none."""
    return "" if math.isnan(value) else f"± {value:.{digits}f}"


def wall_time(seconds: float) -> str:
    """As a person says it.

    >>> wall_time(0.4), wall_time(43.48), wall_time(225.0), wall_time(4517.7)
    ('under a second', '43 s', '3 min 45 s', '1 h 15 min')
    """
    if math.isnan(seconds):
        return "–"
    whole = round(seconds)
    if whole < 1:
        return "under a second"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")
