"""Values of a sweep that are written shorter than a list: ranges, "1:1000:log4", and expressions of N, "25/N"."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, get_args, get_type_hints

from fnbandit.config import Config
from fnbandit.config.fields import list_accepted

RANGE = re.compile(r"([^:]+):([^:]+):(log|lin)(\d+)")
"""FIRST:LAST:logCOUNT and FIRST:LAST:linCOUNT"""
EXPRESSION = re.compile(r"[0-9eN.+*/() -]*\bN\b[0-9eN.+*/() -]*")
LONGEST_RANGE = 1000
ARITHMETIC: dict[type, Callable[..., float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: math.pow, ast.UAdd: operator.pos, ast.USub: operator.neg,
}  # fmt: skip


def number_type(name: str) -> type | None:
    """Return float or int where a field of Config takes numbers, else None."""
    kinds = _kinds(get_type_hints(Config, include_extras=True)[name])
    return float if float in kinds else int if int in kinds else None


def _kinds(hint: Any) -> set[Any]:
    return {hint} | {kind for part in get_args(hint) for kind in _kinds(part)}


def expand_range(name: str, text: str) -> list[str]:
    """Return the numbers of a range as texts, with both ends; [text] for any other text.

    log: equal ratios, lin: equal distances. In fields of whole numbers the values are rounded, and each is there once.
    """
    found, kind = RANGE.fullmatch(text.strip()), number_type(name)
    if found is None or kind is None:
        return [text]
    try:
        first, last, count = float(found[1]), float(found[2]), int(found[4])
    except ValueError:
        raise ValueError(f"{name}={text!r}: expected FIRST:LAST:logCOUNT or FIRST:LAST:linCOUNT of numbers") from None
    if not 2 <= count <= LONGEST_RANGE:
        raise ValueError(f"{name}={text!r}: expected a count of 2 to {LONGEST_RANGE}")
    shares = [place / (count - 1) for place in range(count)]
    if found[3] == "log":
        if not (0 < first < math.inf and 0 < last < math.inf):
            raise ValueError(f"{name}={text!r}: a logarithmic range needs numbers above 0")
        values = [first ** (1 - share) * last**share for share in shares]
    else:
        values = [first + (last - first) * share for share in shares]
    return list(dict.fromkeys(str(round(value)) if kind is int else f"{value:.6g}" for value in values))


def is_expression(name: str, value: Any) -> bool:
    """Return True for a text such as "25/N" in a field that takes numbers."""
    return isinstance(value, str) and EXPRESSION.fullmatch(value) is not None and number_type(name) is not None


def evaluate(name: str, text: str, agents: int) -> float | int:
    """Return the number that an expression of N stands for; it may have numbers, + - * / ** and parentheses."""
    try:
        value = _compute(ast.parse(text.strip(), mode="eval").body, float(agents))
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError, OverflowError, ValueError, RecursionError):
        raise ValueError(f"{name}={text!r}: expected numbers, N, + - * / ** and parentheses") from None
    if not math.isfinite(value):
        raise ValueError(f"{name}={text!r}: is {value} for N = {agents}")
    if number_type(name) is int:
        if value != int(value):
            accepted = list_accepted(get_type_hints(Config, include_extras=True)[name])
            raise ValueError(f"{name}={text!r}: is {value:g} for N = {agents}; expected {accepted}")
        return int(value)
    return value


def _compute(node: ast.AST, agents: float) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.Name) and node.id == "N":
        return agents
    if isinstance(node, ast.BinOp):
        return ARITHMETIC[type(node.op)](_compute(node.left, agents), _compute(node.right, agents))
    if isinstance(node, ast.UnaryOp):
        return ARITHMETIC[type(node.op)](_compute(node.operand, agents))
    raise TypeError(node)


def expand_axes(fields: dict[str, Sequence[Any]], zipped: Sequence[str]) -> list[tuple[tuple[str, ...], list[Any]]]:
    """Return the axes of a sweep as names and tuples of values; the lists of `zipped` fields vary together."""
    if zipped:
        known = [name for name in zipped if name in fields]
        lengths = [len(fields[name]) for name in known]
        if len(known) < len(zipped) or len(set(zipped)) < 2 or len(set(lengths)) > 1:
            missing = [name for name in zipped if name not in fields]
            found = f"{missing[0]!r} has no values" if missing else f"they have {', '.join(map(str, lengths))} values"
            raise ValueError(f"zip={','.join(zipped)}: expected two or more lists of the same length; {found}")
    axes: list[tuple[tuple[str, ...], list[Any]]] = []
    for name, values in fields.items():
        if name not in zipped:
            axes.append(((name,), [(value,) for value in values]))
        elif name == next(one for one in fields if one in zipped):
            axes.append((tuple(zipped), list(zip(*(fields[one] for one in zipped), strict=True))))
    return axes
