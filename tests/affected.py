"""Which tests a change can break: `python -m tests.affected [--base REF]` prints their files for pytest (`make check`).

A test is the nearer to a changed module the fewer imports lie between them; the nearest unit tests are chosen, and
`CORE` always. What is further away, and what depends on data files, is for `make test`.
"""

import argparse
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[1]
MOST: Final = 60  # files, beside the core: about a minute of two processors
UNIT_TEST: Final = re.compile(r"tests\.unit\..*\btest_\w+$")
#: The way of a message through protocol, broker, store, replication and client, and what holds the tree together.
CORE: Final = (
    "tests/integration/broker/pulls/test_pull.py",
    "tests/integration/broker/sends/test_send.py",
    "tests/unit/client/producer/test_producer.py",
    "tests/unit/client/consumer/test_push_consumer.py",
    "tests/unit/namesrv/test_route_info_manager.py",
    "tests/unit/protocol/test_golden_wire.py",
    "tests/unit/protocol/message/test_message.py",
    "tests/unit/protocol/frame/test_remoting_command.py",
    "tests/unit/remoting/test_connection.py",
    "tests/unit/replication/ha/test_group_transfer.py",
    "tests/unit/replication/raft/test_leader_elector.py",
    "tests/unit/store/dispatch/test_dispatch_cy.py",
    "tests/unit/store/log/test_record_cy.py",
    "tests/unit/store/recovery/test_recovery.py",
    "tests/unit/store/test_message_store.py",
    "tests/unit/repository/test_architecture_map.py",
    "tests/unit/repository/test_durable_calls.py",
    "tests/unit/repository/test_layers.py",
    "tests/unit/repository/test_makefile.py",
    "tests/unit/repository/test_mission_map.py",
)


def changed_files(base: str, root: Path = ROOT) -> list[str]:
    """Files that differ from where this branch left `base`, committed or not, and those that git does not know yet."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else []

    start = (git("merge-base", "HEAD", base) or ["HEAD"])[0]
    return [*git("diff", "--name-only", start), *git("ls-files", "--others", "--exclude-standard")]


def modules_of(files: Iterable[str], graph: grimp.ImportGraph, root: Path = ROOT) -> set[str]:
    """Modules of the graph that these files are, or are compiled with: a declaration belongs to those that name it."""
    found: set[str] = set()
    for file in files:
        path = PurePath(file)
        name = ".".join(path.with_suffix("").parts).removeprefix("src.").removesuffix(".__init__")
        if path.suffix in (".py", ".pyi"):
            found.add(name)
        elif path.suffix == ".pxd":
            compiled = [one for one in (root / "src").rglob("*_cy.py") if name in one.read_text()]
            found |= {name, *(".".join(one.relative_to(root / "src").with_suffix("").parts) for one in compiled)}
        if path.name == "conftest.py":  # nobody imports it: pytest gives it to all tests of its folder
            folder = ".".join(path.parent.parts)
            found |= {one for one in graph.modules if one.startswith(f"{folder}.")}
    return found & graph.modules


def nearest_tests(changed: set[str], graph: grimp.ImportGraph, most: int = MOST) -> list[str]:
    """Modules of tests that reach a changed one by the fewest imports, nearest first."""
    chosen: list[str] = []
    seen, ring = set(changed), set(changed)
    while ring and len(chosen) < most:
        chosen += sorted(module for module in ring if UNIT_TEST.match(module))
        ring = {one for module in ring for one in graph.find_modules_that_directly_import(module)} - seen
        seen |= ring
    return chosen[:most]


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints the files of tests that a change can break.")
    parser.add_argument("--base", default="main", help="what the change is compared with (default: main)")
    base = parser.parse_args().base
    graph = grimp.build_graph("maxq", "tests", cache_dir=str(ROOT / ".import_linter_cache"))
    tests = nearest_tests(modules_of(changed_files(base), graph), graph)
    print(*dict.fromkeys([*(f"{module.replace('.', '/')}.py" for module in tests), *CORE]))


if __name__ == "__main__":
    main()
