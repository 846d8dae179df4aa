"""The import graph has layers, and a module imports from its own and from lower ones only.

Parts that the registry names are imported by their path when they are asked for; that is no edge of the graph.
"""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys

import pytest
from sources import PACKAGES, imports, modules

LAYERS = [
    {"fnbandit.errors", "fnbandit.hooks", "fnbandit.notebook"},
    {"fnbandit.config"},
    {"fnbandit.core"},
    {"fnbandit.numerics"},
    {"fnbandit.policy"},
    {"fnbandit.environments"},
    {"fnbandit.covariance", "fnbandit.networks"},
    {"fnbandit.federation", "fnbandit.privacy"},
    {"fnbandit.algorithms"},
    {"fnbandit.simulation"},
    {"fnbandit.theory", "fnbandit.planning", "fnbandit.storage"},
    {"fnbandit.runs"},
    {"fnbandit"},
    {"actors"},
    {"workflows.terminal"},
    {"workflows.studies"},
    {"workflows.reporting"},
    {"workflows.tracking"},
    {"workflows.execution"},
    {"workflows.paper", "workflows.benchmarks"},
    {"workflows.command_line"},
    {"workflows"},
]
"""Lowest first. A name stands for a module, or for a package with its modules; fnbandit and workflows stand for
their doors and for the modules beside them that have no line of their own."""
TREES = modules()
IMPORTS = {name: imports(name, TREES) for name in TREES}


def layer(name: str) -> int:
    """The number of a module's layer; a new module must be given one above."""
    homes = {member: number for number, members in enumerate(LAYERS) for member in members}
    home = next((prefix for prefix in (name, ".".join(name.split(".")[:2])) if prefix in homes), name.split(".")[0])
    assert home != "fnbandit" or name == home, f"{name} has no layer"
    return homes[home]


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


def test_only_the_door_names_higher_layers_in_strings():
    """Strings such as "workflows.reporting.plot:plot" are edges that the graph of imports does not have."""
    path = re.compile(r"(actors|workflows)(\.\w+)*:\w+")
    for name, tree in TREES.items():
        found = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        if name.split(".")[0] == "fnbandit":
            assert any(map(path.fullmatch, found)) == (name == "fnbandit"), name


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
