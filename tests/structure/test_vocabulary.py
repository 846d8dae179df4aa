"""Names: one meaning per public top-level name; functions are verbs, so that no function is named by a participle."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from sources import modules

PARTICIPLE = re.compile(r"^(?!need|feed|seed|speed|embed|exceed|bring|string)[a-z]+(ed|ing)$")
IRREGULAR = {
    "brought", "built", "bought", "caught", "chosen", "done", "drawn", "fallen", "felt", "forgotten", "found",
    "frozen", "given", "gone", "grown", "held", "hidden", "kept", "known", "laid", "left", "lent", "lost",
    "made", "meant", "met", "paid", "said", "seen", "sent", "shown", "shrunk", "sold", "spent", "spoken",
    "stolen", "sunk", "taken", "taught", "thought", "thrown", "told", "torn", "understood", "woken", "won",
    "worn", "written",
}  # fmt: skip
"""Of verbs whose participle does not end in -ed; not those that are written like the verb (cut, put, read)"""
PROPERTIES = ("property", "contextmanager", "fixture")
"""Decorators of functions that are read as values, or as context managers"""


def public_names() -> dict[str, set[str]]:
    """Every public class, function, type and constant at the top of a module, with the modules that define it."""
    homes: dict[str, set[str]] = defaultdict(set)
    for module, tree in modules().items():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            parts = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            names = [part.id for part in parts if part.id != "log"]  # every module's logger
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names = [node.name]
            for name in names:
                if not name.startswith("_") and len(name) > 1:
                    homes[name].add(module)
    return homes


def is_participle(word: str) -> bool:
    return word in IRREGULAR or PARTICIPLE.match(word) is not None


def participles(tree: ast.AST) -> list[str]:
    """Functions whose name begins with a participle."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and is_participle(node.name.strip("_").split("_")[0])
        and not any(word in ast.unparse(decorator) for decorator in node.decorator_list for word in PROPERTIES)
    ]


def test_a_public_name_has_one_home():
    homes = {name: found for name, found in public_names().items() if len(found) > 1}
    assert not homes, homes


def test_no_function_is_named_by_a_participle():
    found = [f"{module}:{name}" for module, tree in modules().items() for name in participles(tree)]
    assert not found, "\n".join(found)


def test_such_names_are_seen():
    assert participles(ast.parse("def joined(): ...")) == ["joined"]
    assert participles(ast.parse("def _sending_time(): ...")) == ["_sending_time"]
    assert participles(ast.parse("def chosen(): ...")) == ["chosen"]
    assert participles(ast.parse("@contextmanager\ndef locked(): ...")) == []
    assert participles(ast.parse("def join(): ...\ndef needs_it(): ...")) == []
