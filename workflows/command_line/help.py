"""The text of `--help`: flags in groups, each with the values that it takes, its default and its meaning; examples."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rich.console import Console

from fnbandit.config import FIELDS
from fnbandit.config.fields import describe_fields
from fnbandit.config.registry import KINDS
from workflows.command_line.defaults import describe_default
from workflows.command_line.flags import SHORT_FLAGS, find_nested, is_positional

GROUPS = {
    "what to run": ("preset", "seeds", "seed", "zip", "dry_run", "json", "print_config", "overwrite"),
    "task": ("environment", "agents", "horizon", "arms", "dim", "noise", "label", "standardization", "coding",
             "price", "domain_column", "wheel_delta", "heterogeneity", "drift",
             "feedback_delay"),
    "algorithm": (
        "algorithm", "diagonal", "regularization", "exploration_global", "exploration_local", "weight", "ramp",
        "weight_value", "first_iteration_only", "domain_sample", "received_sample", "use_global", "use_local",
        "aggregate", "epsilon", "gap_weight", "forgetting", "discount", "window",
    ),
    "network": ("network", "width", "hidden_layers", "initialization"),
    "training": (
        "training_loss", "training_optimizer", "training_steps", "training_effort", "training_cap", "training_least",
        "training_rate", "training_schedule", "training_fade", "training_decay", "training_start",
        "stop_training_after", "reward_unit", "federation", "training_sample", "newton_steps",
    ),
    "communication": (
        "trigger", "threshold", "period", "round_budget", "gap_growth", "largest_gap", "participation", "aggregation",
        "trim", "server_momentum", "averagings", "messages", "message_bits", "staleness", "async_gain",
    ),
    "privacy": ("privacy",),
    "liars": ("attack", "byzantine_share", "attack_scale", "attack_arm"),
    "simulated time": ("clock",),
    "theory": ("norm_bound", "noise_bound", "delta"),
    "machine": (
        "engine", "agents_per_actor", "cpus_per_actor", "gpus_per_actor", "address", "actor_timeout", "device",
        "statistics_dtype", "network_dtype",
    ),
}  # fmt: skip
"""Flags by subject. A part's own fields follow the flag that names it; flags in no group are "output"."""

EXAMPLES = {
    "fnbandit run": (
        "fnbandit run --agents 20 --seeds 3",
        "fnbandit run --preset paper --environment shuttle --trigger logdet --threshold 5",
        "fnbandit run my.toml --horizon 500 --dry-run",
    ),
    "fnbandit sweep": (
        "fnbandit sweep --agents 1,2,5,10 --threshold 1,2,5 --seeds 3 --out runs/my-sweep",
        "fnbandit sweep --diagonal true,false --width 20,50",
        'fnbandit sweep --agents 1:1000:log4 --trigger logdet --threshold "25/N"',
    ),
    "fnbandit reproduce": ("fnbandit reproduce fig1a --quick", "fnbandit reproduce all --dry-run"),
    "fnbandit resume": ("fnbandit resume runs/my-sweep",),
    "fnbandit report": ("fnbandit report runs/my-sweep", "fnbandit report runs/one runs/other --out both"),
    "fnbandit compare": ("fnbandit compare runs/one runs/other",),
    "fnbandit theory": ("fnbandit theory --preset theory --agents 10 --horizon 500",),
    "fnbandit ls": ("fnbandit ls --sort regret --filter status=finished", "fnbandit ls runs/my-sweep --json"),
    "fnbandit show": ("fnbandit show runs/my-sweep/agents=2/seed=0",),
    "fnbandit completion": ('eval "$(fnbandit completion bash)"',),
}
INDENT = 30
"""Columns before the texts."""
WORDS = {int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH"}


def print_help(kind: type, program: str, console: Console) -> None:
    """Print the help of a command whose arguments are a dataclass."""
    flags, words = _entries(kind, lists=program == "fnbandit sweep")
    positional = "".join(f" [{entry.takes}]" if entry.optional else f" {entry.takes}" for entry in words.values())
    console.print(f"usage: {program}{positional}{' [--FLAG VALUE ...]' if flags else ''}", markup=False)
    console.print(f"\n{inspect.getdoc(kind)}", markup=False)
    rows = {entry.takes: entry.text for entry in words.values()}
    if rows:
        _section("", rows, console)
    groups = {title: [name for name in names if name in flags] for title, names in GROUPS.items()}
    taken = {name for names in groups.values() for name in names}
    for names in groups.values():
        own = [field for kind in KINDS if kind in names for part in KINDS[kind].values() for field in part.fields]
        names += [name for name in dict.fromkeys(own) if name in flags and name not in taken]
        taken |= set(names)
    groups["output"] = [name for name in flags if name not in taken]
    for title, names in groups.items():
        rows = {}
        for name in names:
            entry = flags[name]
            rows[f"{spell(name)} {entry.takes}".rstrip()] = entry.text + _default(name, entry.default)
        if rows:
            _section(title, rows, console)
    examples = EXAMPLES.get(program, ())
    if examples:
        console.print("\nexamples", style="bold")
    for line in examples:
        console.print(f"  {line}", markup=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A flag or a positional word."""

    takes: str
    text: str
    default: Any
    optional: bool


def _entries(kind: type, lists: bool = False) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """Flags and positional words by field name, those of find_nested dataclasses among them."""
    flags: dict[str, Entry] = {}
    words: dict[str, Entry] = {}
    texts = describe_fields(kind)
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        inner = find_nested(hint)
        if inner is not None:
            below = _entries(inner, lists)
            flags, words = flags | below[0], words | below[1]
            continue
        given = is_positional(hint)
        optional = field.default is not dataclasses.MISSING
        takes = _takes(hint, field.name)
        if lists and field.name in FIELDS and takes:
            takes += ",..."
        entry = Entry(field.name.upper() if given else takes, texts.get(field.name, ""), field.default, optional)
        (words if given else flags)[field.name] = entry
    return flags, words


def _takes(hint: Any, name: str) -> str:
    """Return the word for a flag's value: {ray,local}, INT, NUMBER|theory."""
    if name in KINDS:
        return f"{{{','.join(KINDS[name])},...}}"
    if get_origin(hint) is Annotated:
        return _takes(get_args(hint)[0], "")
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return choices[0] if len(choices) == 1 else f"{{{','.join(choices)}}}"
    if get_args(hint):
        return "|".join(_takes(part, "") for part in get_args(hint) if part not in (type(None), Ellipsis))
    return WORDS.get(hint, "")


def spell(name: str) -> str:
    """Return a flag as users type it, with its short form."""
    short = next((f"{short}, " for short, long in SHORT_FLAGS.items() if long == name), "")
    return f"{short}--{name.replace('_', '-')}"


def _default(name: str, value: Any) -> str:
    if value is True:
        return f" (--no-{name.replace('_', '-')} switches it off)"
    if any(value is one for one in (None, False, dataclasses.MISSING)):
        return ""
    return f" (default: {describe_default(name) if name in FIELDS else value})"


def _section(title: str, rows: Mapping[str, str], console: Console) -> None:
    console.print(f"\n{title}" if title else "", style="bold")
    for flag, text in rows.items():
        lines = textwrap.wrap(text, max(30, console.width - INDENT - 1)) or [""]
        if len(flag) > INDENT - 4:
            console.print(f"  {flag}", markup=False, soft_wrap=True)
        else:
            console.print(f"  {flag}".ljust(INDENT) + lines.pop(0), markup=False, soft_wrap=True)
        for line in lines:
            console.print(" " * INDENT + line, markup=False, soft_wrap=True)
