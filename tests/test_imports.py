"""The import graph has layers, and a module imports from its own and from lower ones only.

Parts that the registry names are imported by their path when they are asked for; that is no edge of the graph.
"""

from __future__ import annotations

import graphlib
import subprocess
import sys

import pytest
from sources import PACKAGES, imports, modules

LAYERS = [
    {"fnbandit.errors", "fnbandit.places"},
    {"fnbandit.registry"},
    {"fnbandit.validation"},
    {"fnbandit.presets", "fnbandit.config"},
    {"fnbandit.fingerprints", "fnbandit.randomness", "fnbandit.slices", "fnbandit.state", "fnbandit.tree"},
    {"fnbandit.memory", "fnbandit.environments", "fnbandit.clock"},
    {"fnbandit.covariance", "fnbandit.network"},
    {"fnbandit.rounds", "fnbandit.training", "fnbandit.ragged_training"},
    {"fnbandit.algorithms"},
    {"fnbandit.results"},
    {"fnbandit.simulation", "fnbandit.timeline", "fnbandit.hosts"},
    {"fnbandit.asynchronous"},
    {"fnbandit.dimensions"},
    {"fnbandit.capacity", "fnbandit.checkpoints", "fnbandit.costs", "fnbandit.records", "fnbandit.theory"},
    {"fnbandit.assumptions"},
    {"fnbandit.runs", "fnbandit.studies"},
    {"fnbandit"},
    {"actors"},
    {"workflows"},
]
"""Lowest first; a package stands for all of its modules, but fnbandit for its door, __init__.py, alone."""
TREES = modules()
IMPORTS = {name: imports(name, TREES) for name in TREES}


def layer(name: str) -> int:
    """The number of a module's layer; a new module must be given one above."""
    found = [
        number
        for number, members in enumerate(LAYERS)
        for member in members
        if name == member or (member != "fnbandit" and name.startswith(f"{member}."))
    ]
    assert len(found) == 1, f"{name} is in {len(found)} layers"
    return found[0]


def ours(name: str) -> set[str]:
    return {other for other in IMPORTS[name] if other.split(".")[0] in PACKAGES}


@pytest.mark.parametrize("name", TREES)
def test_a_module_imports_from_its_own_layer_and_lower_ones(name):
    higher = {other for other in ours(name) if layer(other) > layer(name)}
    assert not higher, f"{name} (layer {layer(name)}) imports {sorted(higher)}"


def test_every_layer_has_a_module_and_every_module_a_layer():
    assert {layer(name) for name in TREES} == set(range(len(LAYERS)))


def test_no_module_waits_for_itself():
    """Of what happens at import time; what waits in a function may go round inside a layer."""
    at_import = {name: imports(name, TREES, inside_functions=False) & TREES.keys() for name in TREES}
    order = list(graphlib.TopologicalSorter(at_import).static_order())  # raises on a circle
    assert len(order) == len(TREES)


def test_the_science_knows_neither_ray_nor_mlflow_nor_who_uses_it():
    strangers = {"ray", "mlflow", "actors", "workflows"}
    for name in TREES:
        if name.split(".")[0] == "fnbandit":
            assert not {other.split(".")[0] for other in IMPORTS[name]} & strangers, name


def test_the_actors_know_neither_mlflow_nor_the_workflows():
    for name in TREES:
        if name.split(".")[0] == "actors":
            assert not {other.split(".")[0] for other in IMPORTS[name]} & {"mlflow", "workflows"}, name


@pytest.mark.long
def test_every_module_of_the_science_can_be_imported_first():
    """Alone, without Ray and MLflow: no module needs another to have been imported before."""
    names = [name for name in TREES if name.split(".")[0] == "fnbandit"]
    code = (
        "import importlib, os, sys\n"
        "sys.modules['ray'] = sys.modules['mlflow'] = None\n"
        "import numpy, torch, pyarrow, pydantic\n"
        "for name in sys.argv[1:]:\n"
        "    if not os.fork():\n"
        "        importlib.import_module(name)\n"
        "        os._exit(0)\n"
        "    assert os.wait()[1] == 0, name\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *names], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
