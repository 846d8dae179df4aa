"""Names that users may have meant, and the one-line error for a name that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

LONGEST_CHOICE = 40
"""Most names that an error lists beside the nearest one"""


def unknown(field: str, value: object, accepted: Iterable[str]) -> str:
    """Return a one-line error: the field, the value, the nearest known names and, if not too many, all names."""
    accepted = list(accepted)
    near = find_near(str(value), accepted)
    hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
    known = f"; accepted: {', '.join(accepted)}" if not near or len(accepted) <= LONGEST_CHOICE else ""
    return f"{field}={value!r} is unknown{hint}{known}"


def find_near(name: str, accepted: Sequence[str]) -> list[str]:
    """Return at most two accepted names that may have been meant: by letters, in any case, or by one of their words."""
    plain = {one: one.lower().replace("_", "-") for one in accepted}
    word = name.lower().replace("_", "-")
    if same := [one for one, text in plain.items() if text == word]:
        return same[:1]
    ratios = {
        one: difflib.SequenceMatcher(None, word, text).ratio() + 0.06 * (text[:3] == word[:3])
        for one, text in plain.items()
    }
    best = max(ratios.values(), default=0.0)
    close = max(0.6, best - max(0.06, 0.5 / max(len(word), 1)))  # in a short name a letter counts for more
    found = sorted((one for one in accepted if ratios[one] >= close), key=lambda one: -ratios[one])
    if best < 0.8:
        found = [one for one, text in plain.items() if len(word) > 2 and word in text.split("-")] + found
    return list(dict.fromkeys(found))[:2]


def count_things(count: int, noun: str) -> str:
    """Return a number with its noun: "1 agent", "2,000 agents"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
