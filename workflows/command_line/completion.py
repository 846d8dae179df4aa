"""Print a script with which a shell completes commands, flags and the values that flags name."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from fnbandit.config.registry import KINDS
from workflows.command_line.flags import SHORT_FLAGS, flag_types, is_positional
from workflows.studies.experiments import experiment_names
from workflows.studies.settings import TRACKERS

NAMES: dict[str, Sequence[str]] = {
    **{kind: list(parts) for kind, parts in KINDS.items()},
    "tracking": list(TRACKERS),
    "experiments": [*experiment_names(), "all"],
    "device": ["auto", "cpu", "cuda"],
    "sort": ["regret", "-regret", "rounds", "agents", "when"],
    "zip": ["agents,threshold"],
}
"""Flags and words that take names, most of which users can extend"""
BASH = """\
_fnbandit() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} choices=
    if [ "$COMP_CWORD" -eq 1 ]; then
        choices={commands}
    else
        case "${{COMP_WORDS[1]}} $before" in
{values}
        *)
            case "${{COMP_WORDS[1]}} $word" in
{flags}
            esac
            ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}}
complete -o default -F _fnbandit fnbandit
"""
ZSH = """\
(( $+functions[compdef] )) || { autoload -U +X compinit && compinit; }
autoload -U +X bashcompinit && bashcompinit
"""


@dataclass(frozen=True)
class Choices:
    """The words that complete a command."""

    flags: dict[str, list[str]] = field(default_factory=dict)
    """Every flag as it is typed, with the values that are known by name"""
    words: list[str] = field(default_factory=list)
    """Values of positional arguments"""


def completion_script(shell: str, commands: Mapping[str, type]) -> str:
    """Return the script for bash, zsh or fish; `commands` has every command's arguments."""
    choices = {name: find_choices(kind) for name, kind in commands.items()}
    if shell == "fish":
        return _fish(choices)
    return (ZSH if shell == "zsh" else "") + _bash(choices)


def find_choices(kind: type) -> Choices:
    """Return the words that complete a command whose arguments are a dataclass."""
    found = Choices({"--help": []})
    for name, hint in flag_types(kind).items():
        flag = name.replace("_", "-")
        found.flags[f"--{flag}"] = [*NAMES[name]] if name in NAMES else _literals(hint)
        if hint is bool:
            found.flags[f"--no-{flag}"] = []
        found.flags.update({short: [] for short, long in SHORT_FLAGS.items() if long == name})
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if is_positional(hint):
            found.words.extend([*NAMES[name]] if name in NAMES else _literals(hint))
    return found


def _literals(hint: Any) -> list[str]:
    if get_origin(hint) is Annotated:
        return _literals(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return [str(choice) for choice in get_args(hint)]
    return [choice for part in get_args(hint) for choice in _literals(part)]


def _bash(commands: Mapping[str, Choices]) -> str:
    """Return a script that leaves files to the shell where no word of ours fits."""
    values, flags = [], []
    for name, choices in commands.items():
        for flag, known in choices.flags.items():
            if known:
                values.append(f'        "{name} {flag}") choices={shlex.quote(" ".join(known))} ;;')
        flags.append(f'            "{name} -"*) choices={shlex.quote(" ".join(choices.flags))} ;;')
        if choices.words:
            flags.append(f'            "{name} "*) choices={shlex.quote(" ".join(choices.words))} ;;')
    names = shlex.quote(" ".join([*commands, "--help", "--version"]))
    return BASH.format(commands=names, values="\n".join(values), flags="\n".join(flags))


def _fish(commands: Mapping[str, Choices]) -> str:
    lines = [f"complete -c fnbandit -f -n __fish_use_subcommand -a {shlex.quote(' '.join(commands))}"]
    for name, choices in commands.items():
        begin = f"complete -c fnbandit -n '__fish_seen_subcommand_from {name}'"
        for flag, known in choices.flags.items():
            option = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            lines.append(f"{begin} {option}" + (f" -x -a {shlex.quote(' '.join(known))}" if known else ""))
        if choices.words:
            lines.append(f"{begin} -f -a {shlex.quote(' '.join(choices.words))}")
    return "\n".join(lines) + "\n"
