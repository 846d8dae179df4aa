"""The sources of the three packages as syntax trees, for tests that look at how the code is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PACKAGES = ("fnbandit", "actors", "workflows")


def modules() -> dict[str, ast.Module]:
    """All modules by name; a package's is its __init__.py."""
    trees = {}
    for package in PACKAGES:
        for path in sorted((TOP / package).rglob("*.py")):
            name = ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__")
            trees[name] = ast.parse(path.read_text())
    return trees


def executed(node: ast.AST, inside_functions: bool = True) -> Iterator[ast.AST]:
    """A tree's nodes without what stands under TYPE_CHECKING; on request, without what waits in functions."""
    yield node
    if not inside_functions and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        children = iter(node.orelse)
    for child in children:
        yield from executed(child, inside_functions)


def imports(name: str, trees: dict[str, ast.Module], inside_functions: bool = True) -> set[str]:
    """The modules that a module imports; `from package import module` is that module."""
    found: set[str] = set()
    for node in executed(trees[name], inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{name}: a relative import"
            both = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if full in trees else node.module for full in both}
    return found - {name}
