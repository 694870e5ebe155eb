"""Only runtime/files/durable_files.py syncs, renames, truncates and removes durable files.

The import contract in pyproject.toml keeps its parts to itself; this walks the tree for the calls of the system.
"""

import ast
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

import maxq

ROOT: Final = Path(maxq.__file__).parent
HOME: Final = "runtime/files/durable_files.py"

#: What these do to a file is durable, or is not durable and should be, whosever method it is.
METHODS: Final = frozenset(
    {"fsync", "fdatasync", "ftruncate", "unlink", "rmdir", "rmtree", "removedirs", "renames", "copyfile", "copytree"}
)
#: The same, of the module `os`: other things have methods of these names.
OF_OS: Final = frozenset({"replace", "rename", "remove", "truncate", "link", "sync", "pwrite", "pwritev", "sendfile"})
#: Of an object that may be a path. Called with one argument alone, `replace` and `rename` are of paths, too.
OF_PATHS: Final = frozenset({"write_bytes", "write_text"})

#: What is no durable file: it goes with the process, or its user only waits for it to come and go.
EXCEPTIONS: Final = {
    "runtime/files/ring_memory.py": {"os.ftruncate": "memory that has no name"},
    "runtime/files/plain_files.py": {
        "os.fsync": "a client's file where the system is not POSIX",
        "os.replace": "the same",
    },
    "remoting/tls/self_signed.py": {"Path(name).unlink": "a key for OpenSSL to read, gone at once"},
    "pipeline/spark/home.py": {"link.unlink": "a link in a temporary folder"},
    "pipeline/spark/java.py": {"os.replace": "a script in a temporary folder"},
    "cli/commands/workers.py": {"ready_file.unlink": "ready files"},
    "cli/commands/servers.py": {"ready_file.unlink": "ready files"},
    "pipeline/reports/page.py": {"path.write_text": "a page, made again at will"},
    "standalone.py": {"shutil.rmtree": "a temporary folder"},
    "testing/server_process.py": {"ready_file.unlink": "a ready file", "shutil.rmtree": "a temporary folder"},
    "testing/sim_disk.py": {"self._directory.unlink": "of the simulated disk"},
}


def forbidden_calls(source: str) -> list[str]:
    """Calls in a module that only runtime/files/durable_files.py makes, as they are written there; imports of their
    names count, too."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil"):
            found += [f"from {node.module} import {name.name}" for name in node.names if name.name in METHODS | OF_OS]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_alone = len(node.args) == 1 and not node.keywords
            if is_alone and node.func.attr in ("replace", "rename", "hardlink_to"):
                found.append(ast.unparse(node.func))
        if not isinstance(node, ast.Attribute):
            continue
        is_os = isinstance(node.value, ast.Name) and node.value.id in ("os", "shutil")
        if node.attr in METHODS or node.attr in OF_PATHS or (is_os and node.attr in OF_OS):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    "line",
    [
        "os.fsync(fd)", "os.replace(a, b)", "path.unlink()", "shutil.rmtree(folder)", "from os import fdatasync",
        "sync = os.fdatasync", "os.rename(a, b)", "os.truncate(path, 0)", "Path(name).write_bytes(data)",
        "scratch.replace(path)",
    ],
)  # fmt: skip
def test_such_a_call_is_found(line: str) -> None:
    assert forbidden_calls(f"import os\n{line}\n")


def test_durable_files_are_changed_in_one_module() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): forbidden_calls(path.read_text())
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).as_posix() != HOME
    }
    wrong = [
        f"{name}: {call}" for name, calls in found.items() for call in calls if call not in EXCEPTIONS.get(name, ())
    ]
    assert not wrong, f"these belong to {HOME}, which knows what a failed sync means"


def test_every_exception_is_still_there() -> None:
    there = {name: Counter(forbidden_calls((ROOT / name).read_text())) for name in EXCEPTIONS}
    assert not [f"{name}: {call}" for name, calls in EXCEPTIONS.items() for call in calls if not there[name][call]]
