"""Validated settings: pydantic dataclasses with strict types and one-line errors."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import textwrap
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

import pydantic
from pydantic import AfterValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from fnbandit.config.registry import check_name, unknown

Theory = Literal["theory"]
Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Probability = Annotated[float, Field(gt=0, lt=1)]


def _check_named(kind: str) -> AfterValidator:
    def check(name: str) -> str:
        check_name(kind, name)
        return name

    return AfterValidator(check)


AlgorithmName = Annotated[str, _check_named("algorithm")]
EnvironmentName = Annotated[str, _check_named("environment")]
TriggerName = Annotated[str, _check_named("trigger")]
WeightName = Annotated[str, _check_named("weight")]
OptimizerName = Annotated[str, _check_named("training_optimizer")]
FederationName = Annotated[str, _check_named("federation")]
AggregationName = Annotated[str, _check_named("aggregation")]
StatisticsRuleName = Annotated[str, _check_named("aggregation_statistics")]
AttackName = Annotated[str, _check_named("attack")]
MessagesName = Annotated[str, _check_named("messages")]
ClockName = Annotated[str, _check_named("clock")]
StalenessName = Annotated[str, _check_named("staleness")]
ParticipationName = Annotated[str, _check_named("participation")]
PrivacyName = Annotated[str, _check_named("privacy")]
HeterogeneityName = Annotated[str, _check_named("heterogeneity")]
PersonalizationName = Annotated[str, _check_named("personalization")]
ForgettingName = Annotated[str, _check_named("forgetting")]
DriftName = Annotated[str, _check_named("drift")]

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def settings(cls: type[T]) -> type[T]:
    """Make a frozen dataclass that checks types and bounds of its annotations and raises one-line ValueErrors."""
    strict = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)
    made: Any = pydantic.dataclasses.dataclass(cls, frozen=True, config=strict)
    check = made.__init__

    @functools.wraps(check)
    def initialise(self: Any, *args: Any, **fields: Any) -> None:
        try:
            check(self, *args, **fields)
        except pydantic.ValidationError as error:
            raise ValueError(one_line(error, made)) from None

    made.__init__ = initialise
    return made


def one_line(error: pydantic.ValidationError, kind: type) -> str:
    """Return the first error in one line: the field, the value, and the accepted values."""
    first = error.errors()[0]
    if not first["loc"] or first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, ")
    name, value = str(first["loc"][0]), first["input"]
    hints = get_type_hints(kind, include_extras=True)
    if name not in hints:
        return unknown("field", name, hints)
    if first["type"].startswith("missing"):
        return f"{name}: is missing; expected {list_accepted(hints[name])}"
    return refusal(name, value, hints[name])


def refusal(name: str, value: object, hint: Any) -> str:
    """Return the one-line error for a value that a field's annotation does not accept."""
    if get_origin(hint) is Literal:
        return unknown(name, value, [str(choice) for choice in get_args(hint)])
    return f"{name}={value!r}: expected {list_accepted(hint)}"


def list_accepted(hint: Any) -> str:
    """Describe the accepted values: Count | Literal["auto"] as "a whole number, at least 1, or 'auto'"."""
    origin = get_origin(hint)
    if origin is Annotated:
        kind, *marks = get_args(hint)
        metadata = [bound for mark in marks if isinstance(mark, FieldInfo) for bound in mark.metadata]
        return ", ".join([list_accepted(kind), *filter(None, map(_bound, metadata))]).replace(", above", " above")
    if origin is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    if get_args(hint):
        return ", or ".join(list_accepted(part) for part in get_args(hint) if part is not type(None))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}
    return words.get(hint, getattr(hint, "__name__", str(hint)))


def _bound(mark: Any) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return next((f"{word} {getattr(mark, key)}" for key, word in words.items() if hasattr(mark, key)), "")


def describe_fields(kind: type) -> dict[str, str]:
    """Return the docstrings of the fields of a dataclass and of its bases."""
    result: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for statement, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(after, ast.Expr):
                assert isinstance(statement.target, ast.Name)
                result[statement.target.id] = " ".join(ast.literal_eval(after.value).split())
    return result


class FieldTexts:
    """A class's `__doc__` with the text and default of every field, composed when it is read, by help(Config)."""

    def __init__(self, doc: str) -> None:
        self._doc = doc

    def __get__(self, instance: object, owner: type) -> str:
        texts = describe_fields(owner)
        lines = [inspect.cleandoc(self._doc), "", "Fields:"]
        for field in dataclasses.fields(owner):
            text = f"{field.name} (default: {field.default!r}): {texts[field.name]}"
            lines += textwrap.wrap(
                text, 100, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False
            )
        return "\n".join(lines)
