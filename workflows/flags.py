"""Command lines, typed: which words are flags' values, what tyro makes of them, and one line for what is wrong.

A command's arguments are a dataclass, whose fields may be dataclasses themselves; every field that is not positional
is a flag. A flag has one value, as `--name value` or `--name=value`; `--name` alone and `--no-name` switch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import io
import operator
from collections.abc import Container, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import tyro

from fnbandit.validation import accepted, refusal

T = TypeVar("T")
STYLE = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff)
SHORT = {"-q": "quiet", "-v": "verbose"}
"""Flags that have a short form."""


def parse(kind: type[T], program: str, argv: Sequence[str]) -> T:
    """A command's arguments; whatever is wrong with them is a ValueError of one line."""
    return parse_lists(kind, program, argv, ())[0]


def parse_lists(
    kind: type[T], program: str, argv: Sequence[str], several: Container[str]
) -> tuple[T, dict[str, list[Any]]]:
    """A command's arguments with the first value of every list, and all values of the flags that were given.

    The flags in `several` may have lists: --agents 1,2,5. tyro sees the first values of all lists, then the second
    ones, and so on, a list that has ended being represented by its last value.
    """
    if "--help" in argv or "-h" in argv:
        from workflows import help
        from workflows.output import console

        help.show(kind, program, console())
        raise SystemExit(0)
    types = flag_types(kind)
    words, flags = separate(types, argv)
    texts = {name: text.split(",") if name in several else [text] for name, text in flags.items()}
    parsed = []
    for place in range(max(map(len, texts.values()), default=1)):
        now = {name: values[min(place, len(values) - 1)] for name, values in texts.items()}
        parsed.append(_parse_one(kind, program, words, now))
    given = {name: [_flat(parsed[place])[name] for place in range(len(values))] for name, values in texts.items()}
    return parsed[0], given


def flag_types(kind: type) -> dict[str, Any]:
    """The annotation of every flag of a command's arguments, by the field's name."""
    result: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if (inner := nested(hint)) is not None:
            result |= flag_types(inner)
        elif not is_positional(hint):
            result[name] = hint
    return result


def nested(hint: Any) -> type | None:
    """The dataclass that a field's annotation stands for, if it does."""
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return inner if isinstance(inner, type) and dataclasses.is_dataclass(inner) else None


def is_positional(hint: Any) -> bool:
    """Whether a field is a word of its own and no flag."""
    return get_origin(hint) is Annotated and tyro.conf.Positional in get_args(hint)


def composed(kind: type[T], values: Mapping[str, Any]) -> T:
    """Arguments from their values by name, however deep they are nested; what is not given has its default."""
    made: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if (inner := nested(hint)) is not None:
            made[name] = composed(inner, values)
        elif name in values:
            made[name] = values[name]
    return kind(**made)


def separate(types: dict[str, Any], argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words that belong to no flag, and the text of every flag that is given."""
    words: list[str] = []
    flags: dict[str, str] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") and SHORT.get(word) not in types:
            if word.startswith("-") and not word[1:2].isdigit() and word != "-":
                raise ValueError(f"{word} is no option; --help lists them")
            words.append(word)
            continue
        flag, equals, text = (f"--{SHORT[word]}" if word in SHORT else word).partition("=")
        name = flag[2:].replace("-", "_")
        if name not in types:
            switch = name.removeprefix("no_")
            if equals or types.get(switch) is not bool:
                near = difflib.get_close_matches(name, types, n=1)
                hint = f" (did you mean --{near[0].replace('_', '-')}?)" if near else ""
                raise ValueError(f"{flag} is no option{hint}; --help lists them")
            name, text = switch, "false"
        elif types[name] is bool and not equals:
            text = rest.pop(0) if rest and set(rest[0].lower().split(",")) <= {"true", "false"} else "true"
        elif not equals:
            if not rest or rest[0].startswith("--"):
                raise ValueError(f"{flag}: has no value; expected {accepted(types[name])}")
            text = rest.pop(0)
        if name in flags:
            raise ValueError(f"{flag}: is given twice")
        flags[name] = text
    return words, flags


def _parse_one(kind: type[T], program: str, words: list[str], flags: dict[str, str]) -> T:
    types = flag_types(kind)
    # tyro spells truth as Python does.
    spelled = {name: text.capitalize() if types[name] is bool else text for name, text in flags.items()}
    given = {name: f"--{name.replace('_', '-')}={text}" for name, text in spelled.items()}
    try:
        return _tyro(kind, program, [*words, *given.values()])
    except Refused:
        pass
    _tyro(kind, program, words)  # raises if the words that are no flag's are to blame
    for name, flag in given.items():
        try:
            _tyro(kind, program, [*words, flag])
        except Refused:
            raise ValueError(refusal(name, flags[name], types[name])) from None
    raise AssertionError("tyro refuses together what it takes one by one")


class Refused(ValueError):  # noqa: N818
    """tyro's own refusal, in the words of its first line."""


def _tyro(kind: type[T], program: str, argv: list[str]) -> T:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, prog=program, args=argv, config=STYLE)
    except SystemExit as end:
        if not end.code:
            raise
        # A framed text: its title, then the message.
        lines = [line.strip("│╭╮╰╯─|+- ") for line in said.getvalue().splitlines()]
        raise Refused([line for line in lines if line][1]) from None


def _flat(arguments: Any) -> dict[str, Any]:
    """The values of all flags by name, as `flag_types` has their types."""
    result: dict[str, Any] = {}
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        result |= _flat(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return result


def print_completion(shell: str, commands: Mapping[str, type]) -> None:
    """A script for a shell that completes commands, their flags and the flags' values."""
    kinds = [Annotated[kind, tyro.conf.subcommand(name)] for name, kind in commands.items()]
    choices: Any = functools.reduce(operator.or_, kinds)
    with contextlib.suppress(SystemExit):
        tyro.cli(choices, prog="fnbandit", args=["--tyro-print-completion", shell], config=STYLE)
