"""Settings that check themselves: types, bounds, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import model_validator

from actors import Options
from fnbandit.config.fields import Count, Positive, Share, list_accepted, settings
from workflows.studies.settings import Settings


@settings
class Base:
    count: Count | Literal["auto"] = "auto"
    share: Share = 0.5


@settings
class Both(Base):
    mode: Literal["ray", "local"] = "ray"
    switch: bool = True
    out: Path | None = None

    @model_validator(mode="after")
    def _check_together(self):
        if self.mode == "local" and self.count == 3:
            raise ValueError("count=3: not with mode=local")
        return self


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"count": 0}, "count=0: expected a whole number, at least 1, or 'auto'"),
        ({"count": "3"}, "count='3': expected a whole number, at least 1, or 'auto'"),
        ({"count": True}, "count=True: expected a whole number, at least 1, or 'auto'"),
        ({"share": 1.5}, "share=1.5: expected a number, at least 0, at most 1"),
        ({"mode": "locl"}, "mode='locl' is unknown (did you mean 'local'?); accepted: ray, local"),
        ({"switch": "no"}, "switch='no': expected true or false"),
        ({"switch": 1}, "switch=1: expected true or false"),
        ({"out": 3}, "out=3: expected a path"),
        (
            {"shares": 0.1},
            "field='shares' is unknown (did you mean 'share'?); accepted: count, share, mode, switch, out",
        ),
        ({"mode": "local", "count": 3}, "count=3: not with mode=local"),
    ],
)
def test_what_is_wrong_is_one_line(values, line):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Both(**values)
    assert str(error.value) == line


def test_what_is_right_is_kept():
    both = Both(count=3, share=1, out=Path("here"))
    assert (both.count, both.share, both.out, both.mode) == (3, 1.0, Path("here"), "ray")
    assert both == Both(3, 1.0, out=Path("here"))
    assert len({both, Both(count=3, share=1, out=Path("here"))}) == 1
    with pytest.raises(AttributeError):
        both.count = 4


def test_annotations_in_words():
    assert list_accepted(Positive | Literal["theory"]) == "a number above 0, or 'theory'"
    assert list_accepted(str | None) == "a text"


@pytest.mark.parametrize("kind", [Options, Settings])
@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        ({"agents_per_actor": 0}, "agents_per_actor=0: expected a whole number, at least 1, or 'auto'"),
        ({"agents_per_actor": 1.5}, "agents_per_actor=1.5: expected a whole number"),
        ({"agents_per_actor": True}, "agents_per_actor=True: expected a whole number"),
        ({"agents_per_actor": "all"}, "agents_per_actor='all': expected a whole number"),
        ({"cpus_per_actor": float("nan")}, "cpus_per_actor=nan: expected a number"),
        ({"gpus_per_actor": "1"}, "gpus_per_actor='1': expected a number, at least 0"),
        ({"cpus_per_actor": -1}, "cpus_per_actor=-1: expected a number, at least 0"),
        ({"gpus_per_actor": float("inf")}, "gpus_per_actor=inf"),
        ({"actor_timeout": 0}, "actor_timeout=0: expected a number above 0"),
        ({"address": 5}, "address=5: expected a text"),
        ({"cpus_per_actor": 0}, "cpus_per_actor=0, gpus_per_actor=auto: one of them must be above 0"),
    ],
)
def test_options_and_settings_check_alike(kind, values, pattern):
    with pytest.raises(ValueError, match=pattern):
        kind(**values)
    assert kind(cpus_per_actor=0, gpus_per_actor=0.5).gpus_per_actor == 0.5
