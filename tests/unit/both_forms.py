"""The compiled form and the uncompiled form of a `*_cy` module, for tests that must hold in both."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import maxq


def uncompiled(name: str) -> ModuleType:
    """Load `name` (e.g. maxq.store.log_cy) from its source, whatever extension stands beside it."""
    path = Path(maxq.__path__[0]).joinpath(*name.split(".")[1:]).with_suffix(".py")
    alias = f"{name}__uncompiled"
    if alias not in sys.modules:
        spec = importlib.util.spec_from_file_location(alias, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[alias] = module
        spec.loader.exec_module(module)
    return sys.modules[alias]


def both(name: str) -> list[ModuleType]:
    """[uncompiled, as installed]"""
    return [uncompiled(name), importlib.import_module(name)]
