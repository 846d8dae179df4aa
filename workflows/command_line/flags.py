"""Parse the words of a command line against the annotations of a dataclass.

A command's arguments are a dataclass, whose fields may be dataclasses themselves; every field that is not `Positional`
is a flag. A flag has one value, as `--name value` or `--name=value`; `--name` alone and `--no-name` switch a boolean.
Words become values here, by type alone. The dataclass checks bounds and names, as it does for values from files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fnbandit.config.fields import list_accepted, refusal
from fnbandit.config.words import find_near
from workflows.studies.values import expand_range, is_expression

T = TypeVar("T")
LIST_HINT = "lists are written 1,2,5, without spaces"
WORD = "a word of its own"
Positional = Annotated[T, WORD]
"""Annotation of an argument that is a word of its own, without a flag"""
SHORT_FLAGS = {"-q": "quiet", "-v": "verbose", "-N": "agents", "-T": "horizon", "-D": "threshold"}
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
    values = _assign_words(kind, words, bool(several))
    for name, text in flags.items():
        values[name] = _read_list(name, text, types[name]) if name in several else read_texts(name, [text], types[name])
    return values


def _read_list(name: str, text: str, hint: Any) -> list[Any]:
    """Return the values of a field of Config: of a list, of ranges; expressions of N stay texts."""
    texts = [value for part in text.split(",") for value in expand_range(name, part)]
    if len(texts) > 1 and not all(map(str.strip, texts)):
        raise ValueError(f"{name}={text!r}: {LIST_HINT}")
    values: list[Any] = []
    for value in texts:
        values += [value] if is_expression(name, value) else read_texts(name, [value], hint)
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
    rest = [word for given in argv for word in _split_switches(types, given)]
    while rest:
        word = rest.pop(0)
        short, _, _ = word.partition("=")
        if SHORT_FLAGS.get(short) in types:
            word = f"--{SHORT_FLAGS[short]}{word[len(short) :]}"
        elif not word.startswith("--"):
            if word.startswith("-") and not word[1:2].isdigit() and word != "-":
                raise ValueError(f"{printable(word)}: unknown option; see --help")
            words.append(word)
            continue
        flag, equals, text = word.partition("=")
        name = flag[2:].replace("-", "_")
        if name not in types:
            switch = name.removeprefix("no_")
            if equals or types.get(switch) is not bool:
                raise ValueError(f"{printable(flag)}: unknown option{_suggest(flag, types)}; see --help")
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


def _split_switches(types: Mapping[str, Any], word: str) -> list[str]:
    """Return -q and -v for -qv: several short flags without values in one word."""
    parts = [f"-{letter}" for letter in word[1:]] if word.startswith("-") else []
    is_joined = len(parts) > 1 and all(types.get(SHORT_FLAGS.get(part, "")) is bool for part in parts)
    return parts if is_joined else [word]


def _suggest(flag: str, types: Mapping[str, Any]) -> str:
    """Return a hint with the flag that may have been meant; empty where none is near."""
    short = f"-{flag[2:]}"
    if SHORT_FLAGS.get(short) in types:
        return f" (did you mean {short}, --{SHORT_FLAGS[short].replace('_', '-')}?)"
    if flag == "--config" and "preset" in types:
        return " (a settings file is a word of its own: FILE.toml)"
    near = find_near(flag[2:], [name.replace("_", "-") for name in types])
    return f" (did you mean {' or '.join(f'--{name}' for name in near)}?)" if near else ""


def _assign_words(kind: type, words: Sequence[str], has_lists: bool) -> dict[str, list[Any]]:
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
        hint = LIST_HINT if has_lists and rest[0].strip(",.").isdigit() else "see --help"
        raise ValueError(f"{printable(rest[0])}: unexpected argument; {hint}")
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
