"""The stub of a compiled module says what its source says: the same functions, classes, parameters and defaults.

Stubs are written by hand, because the types of Python objects cannot be annotations of the source: Cython would check
and convert what it is given by them, on the hot path. What both say must be the same in both.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "maxq"
STUBS = sorted(PACKAGE.rglob("*_cy.pyi"))

_OF_CYTHON = {
    "cython.bint": "bool",
    "cython.void": "None",
    "cython.double": "float",
    **dict.fromkeys(
        ["cython.int", "cython.uint", "cython.longlong", "cython.ulonglong", "cython.Py_ssize_t", "cython.size_t"],
        "int",
    ),
}
#: Imports that a stub needs for its types, and names that only type checkers need.
_FOR_TYPES = {"Protocol", "TypeVar"}

Function = ast.FunctionDef


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def by_name(nodes: list[ast.stmt]) -> dict[str, ast.stmt]:
    return {node.name: node for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def is_for_c(node: ast.stmt) -> bool:
    """Is it a function that only compiled modules can call?"""
    return isinstance(node, ast.FunctionDef) and "cython.cfunc" in map(ast.unparse, node.decorator_list)


def declared_for_c(name: str) -> bool:
    """Is it declared in a .pxd, for other compiled modules? Then Python need not see it."""
    return re.search(rf"^c(?:p)?def [^\n]*\b{name}\b", DECLARATIONS, re.M) is not None


def is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


def parameters(node: Function) -> list[tuple[str, str, str]]:
    """Name, kind and default of each parameter."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = ["", *map(ast.unparse, arguments.defaults)]
    missing = len(positional) - len(arguments.defaults)
    found = [
        (one.arg, "", defaults[max(0, number - missing + 1)] if number >= missing else "")
        for number, one in enumerate(positional)
    ]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found + [(one.arg, "keyword", "" if default is None else ast.unparse(default)) for one, default in named]


def annotations(node: Function) -> dict[str, str]:
    """What each parameter and the result (`return`) are said to be."""
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    found = {one.arg: ast.unparse(one.annotation) for one in every if one.annotation is not None}
    return found | ({"return": ast.unparse(node.returns)} if node.returns is not None else {})


def differences(source: Function, stub: Function, where: str) -> Iterator[str]:
    if parameters(source) != parameters(stub):
        yield f"{where}: parameters {parameters(source)} and {parameters(stub)}"
    said = annotations(stub)
    for name, kind in annotations(source).items():
        if kind in _OF_CYTHON and said.get(name) != _OF_CYTHON[kind]:
            yield f"{where}: {name} is {kind}, and {said.get(name)}"


def attributes(name: str, classes: dict[str, ast.ClassDef], declarations: str) -> set[str]:
    """What a class of the source, or one that it builds on, lets Python see."""
    found: set[str] = set()
    node = classes.get(name)
    block = re.search(rf"^cdef class {name}\b[^\n]*\n((?:[ \t]+[^\n]*\n|\n)*)", declarations, re.M)
    if block:
        found |= set(re.findall(r"cdef (?:public|readonly) [^\n#]*?(\w+)\s*(?:#[^\n]*)?$", block[1], re.M))
    if node is None:
        return found
    for one in node.body:
        if isinstance(one, ast.FunctionDef):
            found.add(one.name)
        elif isinstance(one, ast.Assign) and "visibility" in ast.unparse(one.value):
            found |= {target.id for target in one.targets if isinstance(target, ast.Name)}
    for base in node.bases:
        found |= attributes(ast.unparse(base), classes, declarations)
    return found


def every_class() -> tuple[dict[str, ast.ClassDef], str]:
    """The classes of all compiled modules, and their declarations for C."""
    sources = [node for path in STUBS for node in parsed(path.with_suffix(".py")).body]
    declared = "\n".join(path.read_text() for path in sorted(PACKAGE.rglob("*_cy.pxd")))
    return {node.name: node for node in sources if isinstance(node, ast.ClassDef)}, declared


CLASSES, DECLARATIONS = every_class()


def test_every_compiled_module_has_a_stub() -> None:
    assert [path.with_suffix(".py") for path in STUBS] == sorted(PACKAGE.rglob("*_cy.py"))


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_a_stub_says_what_its_source_says(stub: Path) -> None:
    source, said = parsed(stub.with_suffix(".py")), parsed(stub)
    mine, theirs = by_name(source.body), by_name(said.body)
    found: list[str] = []
    for name, node in theirs.items():
        own = mine.get(name)
        if isinstance(node, ast.ClassDef):
            if own is None:
                if not _FOR_TYPES & {ast.unparse(base) for base in node.bases}:
                    found.append(f"{name}: not in the source")
                continue
            assert isinstance(own, ast.ClassDef)
            methods = by_name(own.body)
            there = attributes(name, CLASSES, DECLARATIONS)
            for one in node.body:
                if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) not in there:
                    found.append(f"{name}.{ast.unparse(one.target)}: not in the source")
                if isinstance(one, ast.FunctionDef):
                    method = methods.get(one.name)
                    if method is None and one.name not in there:
                        found.append(f"{name}.{one.name}: not in the source")
                    if isinstance(method, ast.FunctionDef):
                        found += differences(method, one, f"{name}.{one.name}")
        elif isinstance(node, ast.FunctionDef):
            if not isinstance(own, ast.FunctionDef):
                found.append(f"{name}: not in the source")
            else:
                found += differences(own, node, name)
    lacking = [
        name
        for name, node in mine.items()
        if is_public(name) and not is_for_c(node) and name not in theirs and not declared_for_c(name)
    ]
    assert (found, lacking) == ([], [])
