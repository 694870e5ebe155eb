"""The compiled form and the uncompiled form of a `*_cy` module, for tests that must hold in both."""

import ast
import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import maxq


def uncompiled(name: str) -> ModuleType:
    """Load `name` (e.g. maxq.store.log.log_cy) from its source, whatever extension stands beside it."""
    path = Path(maxq.__path__[0]).joinpath(*name.split(".")[1:]).with_suffix(".py")
    alias = f"{name}__uncompiled"
    if alias not in sys.modules:
        spec = importlib.util.spec_from_file_location(alias, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[alias] = module
        beside = {other: uncompiled(other) for other in _compiled_imports(path)}
        with _standing_in(beside):
            spec.loader.exec_module(module)
    return sys.modules[alias]


@contextlib.contextmanager
def _standing_in(beside: dict[str, ModuleType]) -> Iterator[None]:
    """Let imports find these modules. What is imported meanwhile for the first time stays, or its classes would be made
    a second time by the next import."""
    stood = {name: sys.modules.get(name) for name in beside}
    sys.modules.update(beside)
    try:
        yield
    finally:
        for name, module in stood.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _compiled_imports(path: Path) -> list[str]:
    """Modules with two forms that the one at `path` imports: its uncompiled form must get theirs."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.module]
    names = {str(node.module) for node in nodes}
    return [name for name in names if name.startswith("maxq.") and name.endswith("_cy")]


def both_together(*names: str) -> list[ModuleType]:
    """[uncompiled, as installed] of several modules that work together, as if they were one."""
    found = []
    for forms in zip(*map(both, names), strict=True):
        together = ModuleType("together")
        for form in forms:
            vars(together).update({name: value for name, value in vars(form).items() if not name.startswith("__")})
        found.append(together)
    return found


def both(name: str) -> list[ModuleType]:
    """[uncompiled, as installed]"""
    return [uncompiled(name), importlib.import_module(name)]
