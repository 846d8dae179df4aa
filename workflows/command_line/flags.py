"""Parse the words of a command line against the annotations of a dataclass.

A command's arguments are a dataclass, whose fields may be dataclasses themselves; every field that is not `Positional`
is a flag. A flag has one value, as `--name value` or `--name=value`; `--name` alone and `--no-name` switch a boolean.
Words become values here, by type alone. The dataclass checks bounds and names, as it does for values from files.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Container, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fnbandit.config.fields import list_accepted, refusal

T = TypeVar("T")
WORD = "a word of its own"
Positional = Annotated[T, WORD]
"""Annotation of an argument that is a word of its own, without a flag"""
SHORT_FLAGS = {"-q": "quiet", "-v": "verbose"}
"""Flags that have a short form"""


def parse(kind: type[T], program: str, argv: Sequence[str]) -> T:
    """Return a command's arguments; raise a ValueError of one line on bad input."""
    values = parse_values(kind, program, argv)
    return build_arguments(kind, {name: several[0] for name, several in values.items()})


def parse_values(kind: type, program: str, argv: Sequence[str], several: Container[str] = ()) -> dict[str, list[Any]]:
    """Return the values of the arguments that `argv` names, by field. Flags in `several` take lists: --agents 1,2,5.

    Print the help and exit if `argv` has --help.
    """
    if "--help" in argv or "-h" in argv:
        from workflows.command_line.help import print_help
        from workflows.terminal.output import console

        print_help(kind, program, console())
        raise SystemExit(0)
    types = flag_types(kind)
    words, flags = separate(types, argv)
    values = _assign_words(kind, words)
    for name, text in flags.items():
        values[name] = read_texts(name, text.split(",") if name in several else [text], types[name])
    return values


def flag_types(kind: type) -> dict[str, Any]:
    """Return the annotation of every flag of a command's arguments, by the field's name."""
    result: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if (inner := find_nested(hint)) is not None:
            result |= flag_types(inner)
        elif not is_positional(hint):
            result[name] = hint
    return result


def find_nested(hint: Any) -> type | None:
    """Return the dataclass that an annotation is, or None."""
    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


def is_positional(hint: Any) -> bool:
    """Return whether an annotation is `Positional`."""
    return get_origin(hint) is Annotated and WORD in get_args(hint)


def build_arguments(kind: type[T], values: Mapping[str, Any]) -> T:
    """Build arguments, nested ones included, from values by field name; the others keep their defaults."""
    made: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if (inner := find_nested(hint)) is not None:
            made[name] = build_arguments(inner, values)
        elif name in values:
            made[name] = values[name]
    return kind(**made)


def separate(types: Mapping[str, Any], argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words that belong to no flag, and the text of every flag in `argv`."""
    words: list[str] = []
    flags: dict[str, str] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") and SHORT_FLAGS.get(word) not in types:
            if word.startswith("-") and not word[1:2].isdigit() and word != "-":
                raise ValueError(f"{printable(word)}: unknown option; see --help")
            words.append(word)
            continue
        flag, equals, text = (f"--{SHORT_FLAGS[word]}" if word in SHORT_FLAGS else word).partition("=")
        name = flag[2:].replace("-", "_")
        if name not in types:
            switch = name.removeprefix("no_")
            if equals or types.get(switch) is not bool:
                near = difflib.get_close_matches(name, types, n=1)
                hint = f" (did you mean --{near[0].replace('_', '-')}?)" if near else ""
                raise ValueError(f"{printable(flag)}: unknown option{hint}; see --help")
            name, text = switch, "false"
        elif types[name] is bool and not equals:
            text = rest.pop(0) if rest and set(rest[0].lower().split(",")) <= {"true", "false"} else "true"
        elif not equals:
            if not rest or rest[0].startswith("--"):
                raise ValueError(f"{flag}: has no value; expected {list_accepted(types[name])}")
            text = rest.pop(0)
        if name in flags:
            raise ValueError(f"{flag}: is given twice")
        flags[name] = text
    return words, flags


def _assign_words(kind: type, words: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of the positional arguments, in the order of their fields; a tuple takes all words left."""
    rest = list(words)
    values: dict[str, list[Any]] = {}
    optional = {field.name for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if not is_positional(hint):
            continue
        inner = get_args(hint)[0]
        if get_origin(inner) is tuple:
            values[name] = [tuple(read_texts(name, rest, get_args(inner)[0]))]
            rest = []
        elif rest:
            values[name] = read_texts(name, [rest.pop(0)], inner)
        elif name not in optional:
            raise ValueError(f"{name}: is missing; expected {list_accepted(inner)}")
    if rest:
        raise ValueError(f"{printable(rest[0])}: unexpected argument; see --help")
    return values


def read_texts(name: str, texts: Sequence[str], hint: Any) -> list[Any]:
    """Convert texts to values of an annotation's type, without a check of its bounds."""
    plain = _plain_type(hint)
    spelled: Any = Literal["true", "false"] if plain is bool else plain
    adapter: TypeAdapter[Any] = TypeAdapter(spelled)
    values: list[Any] = []
    for text in texts:
        if text == "None" and NoneType in get_args(plain):
            values.append(None)
            continue
        try:
            value = adapter.validate_strings(text.lower() if plain is bool else text)
        except ValidationError:
            raise ValueError(refusal(name, text, hint)) from None
        values.append(value == "true" if plain is bool else value)
    return values


def _plain_type(hint: Any) -> Any:
    """Return an annotation without bounds and validators."""
    if get_origin(hint) is Annotated:
        return _plain_type(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(_plain_type(part) for part in get_args(hint))]  # noqa: UP007
    return hint


def printable(word: str) -> str:
    """Return a word of the command line as a message of one line can hold it."""
    return word if word.isprintable() else repr(word)
