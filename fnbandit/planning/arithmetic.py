"""Units of work: operations and traffic, and the rates at which a core does them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """Rates of a core per second: flop of products in double and single precision, bytes of a copy's traffic."""

    double: float
    single: float
    stream: float


@dataclass(frozen=True)
class Work:
    """Floating-point operations in double and single precision, and bytes read and written."""

    double: float = 0.0
    single: float = 0.0
    traffic: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.double + other.double, self.single + other.single, self.traffic + other.traffic)

    def __mul__(self, factor: float) -> Work:
        return Work(self.double * factor, self.single * factor, self.traffic * factor)

    def seconds(self, rates: Rates) -> float:
        """Return the least time on one core: the larger of the times of work and traffic."""
        return max(self.double / rates.double + self.single / rates.single, self.traffic / rates.stream)
