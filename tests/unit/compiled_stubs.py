"""Writes the stubs of compiled modules, `*_cy.pyi`, from their sources: what type checkers see of them.

    python -m tests.unit.compiled_stubs

A type is read from where it stands: Cython's own (`count: cython.int`), a builtin's, or a comment where the type is one
that Cython must not know, for it would check and convert what it is given: `rows,  # type: array[int]` behind a
parameter, `# type: (...) -> int` below a head, `# type: TopicConfig` behind an attribute, in the source or in its .pxd.
Imports and aliases for these comments stand below `if TYPE_CHECKING:` and are taken over as they are.
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.ruff_formatted import ruff_formatted

PACKAGE = Path(__file__).parents[2] / "src" / "maxq"

_INTEGERS = "cython.int cython.uint cython.longlong cython.ulonglong cython.Py_ssize_t cython.size_t"
_OF_CYTHON = {"cython.bint": "bool", "cython.void": "None", "cython.double": "float"} | dict.fromkeys(
    _INTEGERS.split(), "int"
)
_OF_C = {"bint": "bool", "double": "float"} | dict.fromkeys(
    ["int", "unsigned int", "long long", "unsigned long long", "Py_ssize_t", "short"], "int"
)
_OBJECTS = {"object", "list", "dict", "tuple", "set", "frozenset"}  # says too little: a comment says more
_COMMENT = re.compile(r"#\s*type: (?P<type>[^#]+?)\s*(?:#.*)?$")
_DECLARED = re.compile(r"^    cdef (?:public|readonly) (?P<kind>[\w ]+?) (?P<name>\w+)\s*(?P<comment>#.*)?$")


def stubs() -> Iterator[tuple[Path, str]]:
    """The path of each stub, and its text."""
    for source in sorted(PACKAGE.rglob("*_cy.py")):
        yield source.with_suffix(".pyi"), Stub(source).text()


class Stub:
    """One stub, made from the source at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._source = path.read_text()
        self._lines = self._source.splitlines()
        self._tree = ast.parse(self._source, type_comments=True)
        declarations = path.with_suffix(".pxd")
        self._declarations = declarations.read_text().splitlines() if declarations.exists() else []
        self._out: list[str] = []

    def text(self) -> str:
        for node in self._tree.body:
            if isinstance(node, ast.Assign):
                self._constants(node)
            elif isinstance(node, ast.FunctionDef) and is_shown(node):
                self._out.append(self._function(node))
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                self._class(node)
        head = f'"""Written by `python -m tests.unit.compiled_stubs`; see {self._path.name}."""\n'
        whole = "\n".join([head, self._imports(), self._for_types(), *self._out]) + "\n"
        return ruff_formatted(whole, PACKAGE / "stub.pyi")

    # --- what stands before it all ---

    def _for_types(self) -> str:
        """What stands below `if TYPE_CHECKING:`."""
        blocks = [
            node for node in self._tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ]
        lines = [line for node in blocks for line in self._lines[node.lineno : node.end_lineno]]
        return textwrap.dedent("\n".join(lines))

    def _imports(self) -> str:
        """Imports of the source, not of its declarations for C, that the stub needs as well."""
        used = set(re.findall(r"\w+", "\n".join([*self._out, self._for_types()])))
        there = set(re.findall(r"\w+", self._for_types()))
        found = []
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith("cython"):
                names = sorted({alias.name for alias in node.names if alias.name in used and alias.name not in there})
                found += [f"from {node.module} import {', '.join(names)}"] if names else []
        return "\n".join(dict.fromkeys(found)) + ("\nfrom typing import Any" if "Any" in used - there else "")

    # --- what Python sees ---

    def _constants(self, node: ast.Assign) -> None:
        names = [one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        are_texts = isinstance(node.value, ast.Tuple) and all(
            isinstance(one, ast.Constant) and isinstance(one.value, str) for one in node.value.elts
        )
        kind = _COMMENT.search(self._lines[node.lineno - 1])
        said = kind["type"] if kind else "int" if are_numbers(node.value) else "tuple[str, ...]" if are_texts else None
        if said is not None:
            self._out += [f"{name}: {said}" for name in names if not name.startswith("_")]

    def _class(self, node: ast.ClassDef) -> None:
        bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
        inner = [f"{name}: {kind}" for name, kind in self._attributes(node)]
        for one in node.body:
            if isinstance(one, ast.FunctionDef) and is_shown(one):
                decorators = [
                    f"@{ast.unparse(it)}" for it in one.decorator_list if not ast.unparse(it).startswith("cython")
                ]
                inner.append("\n".join([*decorators, self._function(one)]))
        self._out.append(f"class {node.name}{bases}:\n{textwrap.indent(chr(10).join(inner or ['...']), '    ')}")

    def _attributes(self, node: ast.ClassDef) -> Iterator[tuple[str, str]]:
        for one in node.body:
            if isinstance(one, ast.Assign) and "visibility=" in ast.unparse(one.value):
                assert isinstance(one.value, ast.Call)
                kind, comment = ast.unparse(one.value.args[0]), _COMMENT.search(self._lines[one.lineno - 1])
                said = comment["type"] if comment else _OF_CYTHON.get(kind, "Any" if kind in _OBJECTS else kind)
                yield from ((target.id, said) for target in one.targets if isinstance(target, ast.Name))
        is_ours = False
        for line in self._declarations:
            is_ours = re.match(rf"cdef class {node.name}\b", line) is not None or (is_ours and line[:1] in ("", " "))
            declared = _DECLARED.match(line) if is_ours else None
            if declared:
                kind, comment = declared["kind"], _COMMENT.search(declared["comment"] or "")
                said = comment["type"] if comment else _OF_C.get(kind, "Any" if kind in _OBJECTS else kind)
                yield declared["name"], said

    def _function(self, node: ast.FunctionDef) -> str:
        arguments = node.args
        positional = arguments.args
        defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
        parts = [self._parameter(node, one, default) for one, default in zip(positional, defaults, strict=True)]
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        parts += ["*"] * bool(arguments.kwonlyargs) + [self._parameter(node, one, default) for one, default in named]
        return f"def {node.name}({', '.join(parts)}) -> {self._result(node)}: ..."

    def _parameter(self, node: ast.FunctionDef, one: ast.arg, default: ast.expr | None) -> str:
        end = "" if default is None else f" = {ast.unparse(default)}"
        if one.arg == "self":
            return one.arg
        kind = one.type_comment or (ast.unparse(one.annotation) if one.annotation is not None else "")
        kind = _OF_CYTHON.get(kind, kind)
        assert kind and "cython." not in kind, f"{self._path.name}: {node.name}: say the type of {one.arg} in a comment"
        return f"{one.arg}: {kind}{end}"

    def _result(self, node: ast.FunctionDef) -> str:
        if node.name == "__init__":
            return "None"
        if node.type_comment:
            return node.type_comment.partition("-> ")[2]
        assert node.returns is not None, f"{self._path.name}: {node.name}: say what it returns, # type: (...) -> …"
        kind = ast.unparse(node.returns)
        return _OF_CYTHON.get(kind, kind)


def is_shown(node: ast.FunctionDef) -> bool:
    """Does Python see it, and may it?"""
    is_for_c = any(ast.unparse(it) == "cython.cfunc" for it in node.decorator_list)
    return not is_for_c and (node.name == "__init__" or not node.name.startswith("_"))


def are_numbers(node: ast.expr) -> bool:
    """Is this a whole number, or several, for as many names?"""
    if isinstance(node, ast.Tuple):
        return all(map(are_numbers, node.elts))
    if isinstance(node, ast.UnaryOp):
        return are_numbers(node.operand)
    if isinstance(node, ast.BinOp):
        return are_numbers(node.left) and are_numbers(node.right)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "range"
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


if __name__ == "__main__":
    for path, stub in stubs():
        path.write_text(stub)
