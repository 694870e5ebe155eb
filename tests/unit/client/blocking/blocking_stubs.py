"""Writes calls.pyi and consumer_calls.pyi of maxq/client/blocking: what type checkers and editors see of the blocking
clients' methods.

python -m tests.unit.client.blocking.blocking_stubs
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from maxq.client.blocking import calls, consumer_calls
from maxq.client.blocking.face import Face
from tests.ruff_formatted import ruff_formatted

MODULES = (calls, consumer_calls)
_HEAD = '"""Written by `python -m tests.unit.client.blocking.blocking_stubs`; see {}."""\n'
_ITERATORS = ("AsyncIterator", "AsyncGenerator")
_LITERALS = (int, str, bytes, float, bool, type(None))


def path_of(module: ModuleType) -> Path:
    """Where the stub of a module is."""
    return Path(str(module.__file__)).with_suffix(".pyi")


def faces(module: ModuleType) -> Iterator[tuple[type[Face[Any]], type]]:
    """Each class of the module, and the asynchronous class that its methods are made from."""
    for name, value in list(vars(module).items()):
        if name.endswith("Calls") and inspect.isclass(value):
            (of,) = (base.__args__[0] for base in value.__orig_bases__)
            if not isinstance(of, type):
                continue
            yield value, of
    if module is not calls:
        return
    for part, kind in calls.ADMIN_PARTS.items():
        of = getattr(importlib.import_module(f"maxq.client.admin.{part}"), kind)
        yield getattr(calls, kind.removesuffix("Admin") + "Calls"), of


class Imports:
    """What the stub imports: module → names."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self._sources: dict[ModuleType, dict[str, str]] = {}

    def add(self, module: str, name: str) -> None:
        self.names.setdefault(module, set()).add(name)

    def find(self, module: ModuleType, name: str) -> None:
        """Import `name` from where `module` has it."""
        if hasattr(builtins, name):
            return
        self.add(self._of(module).get(name, module.__name__), name)

    def _of(self, module: ModuleType) -> dict[str, str]:
        if module not in self._sources:
            self._sources[module] = {
                (alias.asname or alias.name): node.module or ""
                for node in ast.walk(ast.parse(inspect.getsource(module)))
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
        return self._sources[module]

    def text(self) -> str:
        return "".join(
            f"from {module} import {', '.join(sorted(names))}\n" for module, names in sorted(self.names.items())
        )


class Method:
    """One method of the stub, from the source of the asynchronous one."""

    def __init__(self, method: Callable[..., Any], imports: Imports) -> None:
        self._imports = imports
        self._module = sys.modules[method.__module__]
        self._globals = method.__globals__  # type: ignore[attr-defined]
        node = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        self._node = node

    def text(self) -> str:
        """The method without its body."""
        arguments = self._node.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            if argument.annotation is not None:
                argument.annotation = self._annotation(argument.annotation)
        arguments.defaults = [self._default(value) for value in arguments.defaults]
        arguments.kw_defaults = [None if value is None else self._default(value) for value in arguments.kw_defaults]
        assert self._node.returns is not None, f"{self._node.name} says what it returns"
        returns = self._returns(self._annotation(self._node.returns))
        made = ast.FunctionDef(self._node.name, arguments, [self._body()], [], returns)
        return textwrap.indent(ast.unparse(ast.fix_missing_locations(made)), "    ")

    def _body(self) -> ast.stmt:
        text = ast.get_docstring(self._node, clean=True)
        if text and "\n" in text:
            text = textwrap.indent(text, "    ").strip() + "\n    "
        return ast.Expr(ast.Constant(text or ...))

    def _annotation(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id not in _ITERATORS:
                self._imports.find(self._module, part.id)
        return node

    def _returns(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in _ITERATORS:
            self._imports.add("collections.abc", "Iterator")
            item = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return ast.Subscript(ast.Name("Iterator"), item)
        return node

    def _default(self, node: ast.expr) -> ast.expr:
        """A default as the editor shows it: its value where that can be written, else `...`."""
        value = eval(ast.unparse(node), self._globals)
        plain = type(value) in _LITERALS or value == ()
        return ast.parse(repr(value), mode="eval").body if plain else ast.Constant(...)


def stub(module: ModuleType) -> str:
    """The text of a module's stub."""
    imports = Imports()
    if module is calls:
        imports.add("typing", "Any")
    imports.add("abc", "ABCMeta")
    classes = []
    for face, of in faces(module):
        base = "Part" if face.__bases__[0].__name__ == "Part" else "Face"
        imports.add("maxq.client.blocking.face", base)
        imports.add(of.__module__, of.__name__)
        methods = [
            Method(value.__wrapped__, imports).text()
            for value in vars(face).values()
            if inspect.isfunction(value) and hasattr(value, "__wrapped__")
        ]
        doc = f'    """{inspect.getdoc(face)}"""'
        bases = f"{base}[{of.__name__}]" + (", metaclass=ABCMeta" if base == "Face" else "")
        lines = [f"class {face.__name__}({bases}):", doc, *methods]
        classes.append("\n".join(lines))
    names = "ADMIN_PARTS: dict[str, str]\n\n" if module is calls else ""
    head = _HEAD.format(Path(str(module.__file__)).name)
    return ruff_formatted(f"{head}\n{imports.text()}\n{names}" + "\n\n".join(classes) + "\n", path_of(module))


def main() -> None:
    """Write the stubs."""
    for module in MODULES:
        path_of(module).write_text(stub(module))


if __name__ == "__main__":
    main()
