"""Parts and settings that cannot be combined, each refused in one line."""

from __future__ import annotations

from typing import Any

from fnbandit.config.registry import ALGORITHMS, KINDS, TRIGGERS, link_names, without_effect

PUBLIC_TRIGGERS = ("always", "period", "geometric")
"""Triggers whose rounds are known beforehand"""


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
    if algorithm == "hetofedbandit" and trigger == "diagonal":
        raise ValueError(f"trigger={trigger!r}: algorithm={algorithm} needs whole matrices; logdet has them")
    if algorithm not in ("fn-ucb-async", "fedlinucb"):
        return
    if trigger in ("diagonal", "budget"):
        accepted = ", ".join(name for name in TRIGGERS if name not in ("diagonal", "budget"))
        raise ValueError(f"trigger={trigger!r}: algorithm={algorithm} accepts {accepted}")
    if diagonal:
        raise ValueError(f"diagonal=True: algorithm={algorithm} needs full matrices")


def check_personal(settings: dict[str, Any]) -> None:
    """Raise a one-line ValueError on choices that estimates of an agent's own, or forgetting, do not accept."""
    own, forgetting = settings["personalization"], settings["forgetting"]
    idle = without_effect(settings) if own != "none" or forgetting != "none" else {}
    own = "none" if "personalization" in idle else own
    accepted: dict[str, tuple[str, ...]] = {}
    if own != "none" and settings["diagonal"]:
        raise ValueError(f"diagonal=True: personalization={own} needs full matrices")
    if own in ("cluster", "auto"):
        # Sums of single agents pass no channel, and no rule checks them.
        accepted = {"participation": ("all",), "messages": ("exact", "factored"), "attack": ("none",),
                    "aggregation_statistics": ("sum",)}  # fmt: skip
    for name, values in accepted.items():
        if settings[name] not in values:
            raise ValueError(f"{name}={settings[name]!r}: personalization={own} accepts {', '.join(values)}")
    if forgetting == "discount" and "forgetting" not in idle:
        if settings["federation"] == "average":
            raise ValueError("forgetting='discount': federation=average accepts none, window")
        if own == "auto":
            raise ValueError("forgetting='discount': personalization=auto accepts none, window")


def check_delay(algorithm: str, clock: str, delay: int) -> None:
    """Raise a one-line ValueError where rewards cannot be late: with simulated time, or without barriers."""
    if delay and clock != "none":
        raise ValueError(f"feedback_delay={delay}: clock={clock!r} accepts 0")
    if delay and algorithm in ("fn-ucb-async", "fedlinucb"):
        raise ValueError(f"feedback_delay={delay}: algorithm={algorithm} accepts 0")


def check_private(privacy: str, chosen: dict[str, Any]) -> None:
    """Raise a one-line ValueError on a setting with which something would leave the agents that noise does not cover.

    The rounds of a trigger that measures data tell what the data are; so do matrices, alpha, units, and curvature.
    """
    algorithm = chosen["algorithm"]
    if privacy == "none" or not (ALGORITHMS[algorithm].fields if algorithm in ALGORITHMS else ["trigger"]):
        return
    if algorithm in ("fn-ucb-async", "fedlinucb"):
        raise ValueError(f"algorithm={algorithm!r}: privacy={privacy} accepts fedigw, fn-linear, dislinucb")
    accepted = {"trigger": PUBLIC_TRIGGERS, "messages": ("exact",), "participation": ("all",), "attack": ("none",),
                "aggregation_statistics": ("sum",), "personalization": ("none", "head"),
                "forgetting": ("none",)}  # fmt: skip
    if chosen["diagonal"]:
        raise ValueError(f"diagonal=True: privacy={privacy} accepts False")
    if algorithm in ("fn-ucb", "fn-ucb-less-comm") and chosen["use_global"]:
        raise ValueError(
            f"use_global=True: privacy={privacy} accepts False with algorithm={algorithm}: noise would drown the W of "
            "all parameters, and alpha would tell of data; algorithm=fn-linear has small matrices"
        )
    if algorithm != "dislinucb":
        accepted["federation"] = ("average", "gradients")
    if algorithm in ("fn-exact", "fn-linear") or chosen["federation"] == "gradients":
        accepted["reward_unit"] = ("one",)
    if algorithm != "dislinucb" and (privacy == "central" or chosen["federation"] == "gradients"):
        accepted["aggregation"] = ("mean",)
    for name, choices in accepted.items():
        if chosen[name] not in choices and ":" not in chosen[name]:
            raise ValueError(f"{name}={chosen[name]!r}: privacy={privacy} accepts {', '.join(choices)}")


def check_attack(settings: dict[str, Any]) -> None:
    """Raise a one-line ValueError where an attack or a rule against it cannot be had with the other parts."""
    attack, rule, algorithm = settings["attack"], settings["aggregation_statistics"], settings["algorithm"]
    idle = without_effect(settings) if attack != "none" or rule != "sum" else {}
    if rule != "sum" and "aggregation_statistics" not in idle:
        choice = f"aggregation_statistics={rule!r}"
        if algorithm == "fn-ucb":
            raise ValueError(f"{choice}: algorithm=fn-ucb sends every inverse; fn-ucb-less-comm sends the server's")
        rounded = [link for link in link_names(settings["messages"]) if link not in ("exact", "factored")]
        if rounded and rule in KINDS["aggregation_statistics"]:
            raise ValueError(f"{choice}: messages={rounded[0]} changes honest numbers; accepted: exact, factored")
    if attack == "none" or "attack" in idle:
        return
    choice = f"attack={attack!r}"
    if algorithm == "fn-ucb" and attack not in ("reward-flip", "promote", "flood"):
        raise ValueError(f"{choice}: algorithm=fn-ucb sends every inverse; fn-ucb-less-comm accepts it")
    if algorithm == "fedigw" and attack in ("overconfident", "anxious"):
        raise ValueError(f"{choice}: algorithm=fedigw sends no statistics; expected an attack on networks")
    if attack == "flood" and settings["trigger"] in ("always", "period", "geometric"):
        raise ValueError(f"{choice}: trigger={settings['trigger']} has no reports; accepted: logdet, diagonal, budget")
    if attack in ("alpha-zero", "alpha-one") and ("weight" in idle or settings["weight"] in ("ramp", "constant")):
        raise ValueError(f"{choice}: no agent sends alpha; expected fn-ucb-less-comm with weight=earned or theory")


def count_liars(settings: dict[str, Any]) -> int:
    """Return the number of agents that lie, floor(byzantine_share N); 0 without an attack."""
    if settings.get("attack", "none") == "none" or "attack" in without_effect(settings):
        return 0
    return int(settings["byzantine_share"] * settings["agents"] + 1e-9)


def explain_idle(name: str, reason: str, form: str = "{}={}") -> str:
    """Return the error for a field without effect, with the choices that would give it one, written in a form."""
    kind = reason.partition("=")[0]
    parts = [choice for choice in KINDS.get(kind, {}) if name not in without_effect({kind: choice})][:3]
    remedy = f"; {form.format(kind, ' or '.join(parts))} uses it" if parts else ""
    return f"{name}: has no effect with {reason}{remedy}"
