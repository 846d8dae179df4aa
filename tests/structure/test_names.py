"""Code asks parts, not their names: questions that depend on a part's name are counted.

Such a question compares a name, looks it up in a table, asks whether a class has an attribute, or whether the
registry lists a field with a part.
"""

from __future__ import annotations

import ast

from sources import executed, modules

from fnbandit.config.registry import ALGORITHMS, KINDS, TRIGGERS

ASKED = {kind for kind in KINDS if kind != "environment"} | {"diagonal"}
"""Fields of Config that say which part, or which kind of matrices, a simulation is made of"""
ALLOWED = {
    "fnbandit.config.combinations",
    "fnbandit.config.registry",
    "fnbandit.config.presets",
    "workflows.paper.page_figures",
    "workflows.paper.page",
}
"""Where names belong; the page of results tells of experiments, which are about certain triggers and messages"""
MOST = 10
"""As many as there are"""
STRINGS = ("startswith", "endswith", "removeprefix", "partition", "split")


def reads(node: ast.AST) -> bool:
    """Whether an expression is such a field: config.trigger, settings["trigger"], settings.get("trigger"), trigger."""
    if isinstance(node, ast.Attribute) and node.attr in ASKED:
        # A matrix has a diagonal, too, and so has a module; only a config's is a choice.
        return node.attr != "diagonal" or ast.unparse(node.value).endswith("config")
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value in ASKED
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value in ASKED
    return isinstance(node, ast.Name) and node.id in ASKED - {"weight", "messages", "diagonal"}


def names_a_part(node: ast.AST) -> bool:
    """Whether an expression is, or lists, the name of an algorithm or a trigger."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(names_a_part(element) for element in node.elts)
    return isinstance(node, ast.Constant) and node.value in ALGORITHMS.keys() | TRIGGERS.keys()


def asks(node: ast.AST) -> list[ast.AST]:
    """The questions after a name that a node asks by itself."""
    if looks_up(node) or probes(node) or lists_a_field(node):
        return [node]
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Constant) and side.value is None for side in sides):
            return []  # a name is never None; a message's alpha may be
        return [node] if any(reads(side) or names_a_part(side) for side in sides) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STRINGS:
        argument = node.args[0] if node.args else None
        starts = [str(e.value) for e in ast.walk(argument) if isinstance(e, ast.Constant)] if argument else []
        known = any(text and name.startswith(text) for text in starts for name in ALGORITHMS if len(text) > 2)
        return [node] if reads(node.func.value) or known else []
    conditions: list[ast.AST] = []
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        conditions = [node.test]
    elif isinstance(node, ast.BoolOp):
        conditions = list(node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        conditions = [node.operand]
    elif isinstance(node, ast.comprehension):
        conditions = list(node.ifs)
    elif isinstance(node, ast.Match):
        conditions = [node.subject]
    return [condition for condition in conditions if reads(condition)]


def looks_up(node: ast.AST) -> bool:
    """Whether an expression looks a part's name up: {...}[config.trigger], TABLE.get(config.trigger, 4)."""
    if isinstance(node, ast.Subscript):
        return reads(node.slice)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        return bool(node.args) and reads(node.args[0])
    return False


def probes(node: ast.AST) -> bool:
    """Whether an expression asks for an attribute that a part may lack: hasattr(kind, ..), getattr(kind, .., None)."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
        return False
    name, count = node.func.id, len(node.args)
    return (name == "hasattr" or (name == "getattr" and count == 3)) and is_part(node.args[0])


def is_part(node: ast.AST) -> bool:
    """Whether an expression is a part or its class: resolve_part("trigger", ..), build(..), self._kind, group."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("find", "resolve_part", "build", "type")
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.strip("_") in {"kind", "group", "cls", *(kind for kind in KINDS if kind != "environment")}


def lists_a_field(node: ast.AST) -> bool:
    """Whether an expression asks if the registry lists a field with a part: "width" in part_of(..).fields."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.In | ast.NotIn):
        return False
    listed = node.comparators[0]
    return isinstance(listed, ast.Attribute) and listed.attr == "fields"


def questions(tree: ast.AST) -> list[str]:
    return [f"{found.lineno}: {ast.unparse(found)}" for node in executed(tree) for found in asks(node)]


def test_few_places_ask_for_a_name():
    found = [
        f"{name}:{question}" for name, tree in modules().items() if name not in ALLOWED for question in questions(tree)
    ]
    print(*found, sep="\n")
    assert len(found) <= MOST, "\n".join(found)


def test_such_questions_are_seen():
    seen = [
        'config.algorithm == "x"', 'config.trigger in ("a", "b")', 'self._config.algorithm.startswith("pooled")',
        'name.startswith("pooled")', "1 if config.diagonal else 2", "not config.diagonal",
        "a and point.config.diagonal",
        'settings["trigger"] != "b"', 'settings.get("algorithm") == "b"', 'name == "fn-ucb"', 'kind in {"logdet"}',
        'trigger == "x"', "[x for x in y if config.diagonal]", '{"always": 1}.get(config.trigger, 4)',
        "GAPS[config.trigger]", 'TABLE.get(settings["algorithm"])',
        'hasattr(find("algorithm", name), "averages_inverses")', 'getattr(self._kind, "averages_inverses", None)',
        'getattr(find("trigger", name), "measures", True)', '"width" in part_of("algorithm", name).fields',
        '"weight" not in part.fields',
    ]  # fmt: skip
    for text in seen:
        assert len(questions(ast.parse(text))) == 1, text
    unseen = ["matrix.diagonal()", "self.diagonal is None", 'find("trigger", config.trigger)', 'name.startswith("x=")',
              "shared.trigger.measure(1) > shared.trigger.level", "config.seed == 3", "upload.weight is not None",
              'settings.get("trigger")', 'hasattr(environment, "block")', "getattr(message, field.name)",
              'find("algorithm", config.algorithm).traits.communicates', "dataclasses.fields(message)"]  # fmt: skip
    for text in unseen:
        assert questions(ast.parse(text)) == [], text
