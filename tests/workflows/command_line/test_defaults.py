"""Defaults that depend on the task, the algorithm and the depth are said."""

from __future__ import annotations

import itertools
import re

import pytest

from fnbandit import Config
from fnbandit.config import FIELDS
from fnbandit.config.presets import PRESET_FIELDS
from fnbandit.config.registry import ALGORITHMS, ENVIRONMENTS
from workflows.command_line import main
from workflows.command_line.arguments import StudyArguments, parse_request
from workflows.command_line.defaults import describe_default


def notes(*argv):
    """The lines about defaults of a command line."""
    return parse_request("fnbandit sweep", list(argv), True, StudyArguments).notes


def test_help_says_every_default_that_depends_on_the_task_or_the_algorithm():
    """Every value that a built-in task or algorithm brings stands beside its name."""
    for environment, algorithm in itertools.product(ENVIRONMENTS, ALGORITHMS):
        config = Config(environment=environment, algorithm=algorithm)
        for name in FIELDS:
            value = getattr(config, name)
            if name in PRESET_FIELDS or value == getattr(Config, name):
                continue
            others = describe_default(name).split("; ")[1:]
            said = [text.split(": ") for text in others]
            assert any(value_said == str(value) and {environment, algorithm} & set(re.split(", | with ", names))
                       for names, value_said in said), (name, environment, algorithm)  # fmt: skip
    assert describe_default("agents") == "8; routing: 14"
    assert describe_default("ramp") == "30; shuttle, magic, routing, table.csv: 100"


def test_help_prints_them(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "earned). (default: 30; shuttle, magic, routing, table.csv: 100) --weight" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("--agents 3 --ramp 5", []),
        ("--environment shuttle --ramp 5 --regularization 2", ["shuttle: training_rate = 0.01, training_fade = 0.0"]),
        ("--environment shuttle --ramp 5 --regularization 2 --training-fade 3", ["shuttle: training_rate = 0.01"]),
        ("--environment cosine,shuttle --use-local false", ["shuttle: regularization = 1.0"]),
        ("--algorithm linear-ucb,kernel-ucb", ["linear-ucb, kernel-ucb: regularization = 1.0"]),
        ("--algorithm fn-ucb-async", ["fn-ucb-async: trigger = determinant"]),
        ("--hidden-layers 3", ["3 hidden layers: training_rate = 0.01"]),
    ],
)  # fmt: skip
def test_a_run_says_the_defaults_that_it_has_by_its_task_or_algorithm(line, expected):
    assert notes(*line.split()) == [f"defaults for {text}" for text in expected]
