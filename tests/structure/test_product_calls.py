"""Products of agents' batches are made in one module, which knows the shapes to avoid."""

from __future__ import annotations

import ast

import pytest
from sources import modules

OWNER = "fnbandit.numerics.products"
PRODUCTS = {"bmm", "baddbmm", "baddbmm_", "mm", "addmm", "addmm_", "addbmm", "addbmm_", "matmul", "einsum"}
SMALL = {
    "fnbandit.environments.functions",
    "fnbandit.environments.wheel",
    "fnbandit.environments.worlds",
    "fnbandit.policy",
    "fnbandit.theory.dimensions",
    "workflows.benchmarks.peers.shared_task",
}
"""Modules that multiply numpy's arrays, or one matrix in one process, by @ or einsum"""

TIMED = {"fnbandit.planning.duration"}
"""The module that measures how fast this machine multiplies"""


def found_products(tree: ast.AST, name: str) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PRODUCTS:
            if not (node.attr == "einsum" and name in SMALL):
                found.append(f"{name}:{node.lineno} {ast.unparse(node)}")
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult) and name not in SMALL:
            found.append(f"{name}:{node.lineno} @")
    return found


def test_one_module_makes_all_products():
    others = {name: tree for name, tree in modules().items() if name not in {OWNER, *TIMED}}
    found = [line for name, tree in others.items() for line in found_products(tree, name)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["torch.bmm(a, b)", "a.baddbmm_(b, c)", "x = torch.mm", "a.addmm_(b, c)", "a @ b"])
def test_such_products_are_seen(text):
    assert len(found_products(ast.parse(text), "fnbandit.covariance.full")) == 1
