"""Own parts that return something else than their contract says: one line with part, method, found and expected."""

from __future__ import annotations

import sys

import pytest

from workflows.command_line import main

OWN = """
import dataclasses
import numpy as np
import torch
from fnbandit import BLOCK, Block, Group, Scored
from fnbandit.algorithms.fn_ucb import FNUCBLessComm
from fnbandit.environments.worlds import NoDrift, SameTask
from fnbandit.federation.aggregation import Aggregation
from fnbandit.federation.alpha import AlphaRule
from fnbandit.federation.channels import Channel
from fnbandit.federation.participation import Fraction
from fnbandit.federation.staleness import Unweighted
from fnbandit.federation.triggers import Trigger


class Base(Group):
    def scores(self, iteration, contexts):
        return self.answer(contexts)
    def learn(self, iteration, contexts, arms, rewards, evidence):
        pass
def algorithm(function):
    return type("Own", (Base,), {"__module__": __name__, "answer": lambda self, contexts: function(contexts)})
Bare = algorithm(lambda x: torch.zeros(3))
Flat = algorithm(lambda x: Scored(torch.zeros(3)))
Wide = algorithm(lambda x: Scored(torch.zeros(len(x), 9)))
Array = algorithm(lambda x: Scored(np.zeros(x.shape[:2])))
Nothing = algorithm(lambda x: None)
Complex = algorithm(lambda x: Scored(torch.zeros(x.shape[:2], dtype=torch.complex64)))
NaN = algorithm(lambda x: Scored(torch.full(x.shape[:2], torch.nan)))
class Stateful(Base):
    def answer(self, contexts):
        return Scored(contexts[..., 0])
    def list_state(self):
        return super().list_state() | {"sums": None}
class Wrong(Stateful):
    sums = torch.zeros(7)
class FNUCBWithNaN(FNUCBLessComm):
    def scores(self, iteration, contexts):
        found = super().scores(iteration, contexts)
        return found if iteration < 5 else found._replace(values=found.values * torch.nan)

class Earlier(Trigger):
    measures = False
    def next_round(self, last_round):
        return last_round
class Half(Trigger):
    def next_round(self, last_round):
        return last_round + 0.5
class Scalar(Trigger):
    level = 1.0
    def measure(self, epoch, counters):
        return torch.tensor(3.0)
class Loud(AlphaRule):
    def at(self, iteration, last_round, broadcast):
        return 2
class Sum(Aggregation):
    def __call__(self, values, last):
        return values.sum()
class Doubled(Aggregation):
    def __call__(self, values, last):
        return values.mean(0).double()
class Cut(Channel):
    def send(self, upload, known):
        return dataclasses.replace(upload, theta=upload.theta[:, :3])
class Lost(Channel):
    def send(self, upload, known):
        return None
class Cheap(Channel):
    def resize_upload(self, sizes, contents, rows):
        return 0
class Nobody(Fraction):
    def draw(self, number, iteration):
        return np.zeros(self._config.agents, dtype=bool)
class Negative(Unweighted):
    def __call__(self, staleness):
        return -1

class Unmixed(SameTask):
    has_variants = True
    def mix(self, agent):
        return 0.5
class Halfway(SameTask):
    has_variants = True
    def mix(self, agent):
        return [(0.5, 0), (0.5, 1.5)]
class Still(NoDrift):
    moves = True
    def angles(self, iterations):
        return 0.1

class Task:
    arms, dim = 2, 3
    contexts, means, noise = (BLOCK, 2, 3), (BLOCK, 2), (BLOCK,)
    def __init__(self, config):
        pass
    def block(self, agent, index):
        return Block(np.zeros(self.contexts), np.zeros(self.means), np.zeros(self.noise))
    def domain(self, count):
        return np.zeros((count, 3))
class OtherContexts(Task):
    contexts = (BLOCK, 3, 2)
class Tensors(Task):
    def block(self, agent, index):
        return Block(torch.zeros(self.contexts), np.zeros(self.means), np.zeros(self.noise))
class Pairs(Task):
    def block(self, agent, index):
        return np.zeros(self.contexts), np.zeros(self.means)
class Holes(Task):
    def block(self, agent, index):
        return Block(np.zeros(self.contexts), np.full(self.means, np.nan), np.zeros(self.noise))
    codes_arms = True
class Armless(Task):
    arms = "two"
class Flatland(Task):
    def domain(self, count):
        return np.zeros(count)
"""


@pytest.fixture(autouse=True)
def with_own_modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_values.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_values", None)


ALONE = {"algorithm": "fn-ucb-async", "clock": "uniform"}


@pytest.mark.parametrize(
    ("flag", "name", "words", "more"),
    [
        ("algorithm", "Bare", "scores returned a Tensor [3] of float32; expected Scored(values [2, 4] of real", {}),
        ("algorithm", "Flat", "scores returned Scored(values: a Tensor [3] of float32); expected Scored(", {}),
        ("algorithm", "Wide", "scores returned Scored(values: a Tensor [2, 9] of float32); expected Scored(", {}),
        ("algorithm", "Array", "scores returned Scored(values: an array [2, 4] of float64); expected", {}),
        ("algorithm", "Nothing", "scores returned None; expected Scored(values [2, 4] of real numbers)", {}),
        ("algorithm", "Complex", "scores returned Scored(values: a Tensor [2, 4] of complex64); expected", {}),
        ("algorithm", "NaN", "in iteration 1 the score of arm 0 of agent 0 is NaN", {}),
        ("algorithm", "FNUCBWithNaN", "in iteration 5 the score of arm 0 of agent 0 is NaN", {}),
        ("algorithm", "Stateful", "list_state returned a dict; expected names of attributes; 'sums' is none", {}),
        ("algorithm", "Wrong", "whose first dimension is the 2 agents; 'sums' is a Tensor [7] of float32", {}),
        ("trigger", "Earlier", "next_round returned 1; expected None or a whole number above 1", {}),
        ("trigger", "Half", "next_round returned 1.5; expected None or a whole number above 1", {}),
        ("trigger", "Scalar", "measure returned a Tensor [] of float32; expected a Tensor [n] of real numbers", {}),
        ("weight", "Loud", "at returned 2; expected a number from 0 to 1", {}),
        ("aggregation", "Sum", "call returned a Tensor [] of float32; expected a Tensor [49] of float32", {}),
        ("aggregation", "Doubled", "call returned a Tensor [49] of float64; expected a Tensor [49] of float32", {}),
        ("messages", "Cut", "expected an Upload whose theta is a Tensor [2, 49] of float32; it is a Tensor [2, 3]", {}),
        ("messages", "Lost", "send returned None; expected an Upload", {}),
        ("messages", "Cheap", "resize_upload returned 0; expected Sizes", {}),
        ("participation", "Nobody", "draw returned an array [2] of bool; expected a NumPy array [N] of bool with", {}),
        ("staleness", "Negative", "call returned -1; expected a number above 0", ALONE),
        ("environment", "OtherContexts", "block(0, 0): contexts is an array [32, 3, 2] of float64; expected [32,", {}),
        ("environment", "OtherContexts", "block(0, 0): contexts is an array [32, 3, 2] of float64; expected", ALONE),
        ("environment", "Tensors", "block(0, 0): contexts is Tensor; expected a NumPy array [32, 2, 3]", {}),
        ("environment", "Pairs", "block(0, 0) returned tuple; expected fnbandit.Block(contexts, means, noise)", {}),
        ("environment", "Holes", "block(0, 0): means has a NaN or an infinity; expected finite numbers", {}),
        ("heterogeneity", "Unmixed", "mix returned 0.5; expected a list of (factor, variant): a finite number", {}),
        ("heterogeneity", "Halfway", "mix returned a list; expected a list of (factor, variant)", {}),
        ("drift", "Still", "angles returned 0.1; expected a NumPy array [32] of finite numbers", {}),
        ("environment", "Holes", "block(0, 0): means has a NaN or an infinity", {"drift": "switch"}),
        ("environment", "Armless", "arms is 'two'; expected a whole number, at least 1", {}),
        ("environment", "Flatland", "domain(2) is an array [2] of float64; expected [2, 3] of real numbers", {}),
    ],
)  # fmt: skip
def test_a_value_that_no_part_returns_is_one_line(capsys, flag, name, words, more):
    settings = {"agents": "2", "horizon": "10", "width": "4"} | more | {flag: f"own_values:{name}"}
    if flag == "environment":
        settings.pop("width")
    flags = [word for key, value in settings.items() for word in (f"--{key}", value)]
    assert main(["run", *flags, "--engine", "local", "--tracking", "none", "--out", "here"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and printed.startswith(f"fnbandit: {flag}='own_values:{name}': "), printed
    assert words in printed
