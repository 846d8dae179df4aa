"""Parts and settings that cannot be combined, each refused in one line."""

from __future__ import annotations

from fnbandit.config.registry import TRIGGERS


def check_together(
    algorithm: str, trigger: str, diagonal: bool, participation: str, clock: str, federation: str
) -> None:
    """Raise a one-line ValueError on parts that cannot be combined."""
    if federation == "gauss-newton" and diagonal:
        raise ValueError("diagonal=True: federation=gauss-newton needs full matrices; federation=exact does not")
    if participation == "availability" and clock == "none":
        raise ValueError("participation='availability': needs a clock; clock='none' makes all agents available")
    if algorithm == "fedigw" and trigger in ("logdet", "diagonal", "determinant", "budget"):
        raise ValueError(f"trigger={trigger!r}: algorithm={algorithm} accepts always, period, geometric")
    if algorithm not in ("fn-ucb-async", "fedlinucb"):
        return
    if trigger in ("diagonal", "budget"):
        accepted = ", ".join(name for name in TRIGGERS if name not in ("diagonal", "budget"))
        raise ValueError(f"trigger={trigger!r}: algorithm={algorithm} accepts {accepted}")
    if diagonal:
        raise ValueError(f"diagonal=True: algorithm={algorithm} needs full matrices")


def check_delay(algorithm: str, clock: str, delay: int) -> None:
    """Raise a one-line ValueError where rewards cannot be late: with simulated time, or without barriers."""
    if delay and clock != "none":
        raise ValueError(f"feedback_delay={delay}: clock={clock!r} accepts 0")
    if delay and algorithm in ("fn-ucb-async", "fedlinucb"):
        raise ValueError(f"feedback_delay={delay}: algorithm={algorithm} accepts 0")
