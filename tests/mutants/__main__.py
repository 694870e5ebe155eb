"""Mutation testing of the modules of weight (`make mutants`).

mutmut changes one small thing of a module at a time (a comparison, a number, an argument) and runs the tests of that
module: a change that no test notices, a survivor, is a gap in the tests or makes no difference. Which modules are of
weight, and which tests are to notice, is in `modules.toml`. Survivors that make no difference, or none worth a test,
are in `explained.txt`, each with its reason. The table at the end counts both; survivors that nobody has looked at are
listed in the form of that file, so that a reason can be written below them.

Each run gets a copy of the tree in `build/mutants`. It has no compiled modules if one of them is mutated, for what
Python imports there must be the mutated source. Functions with decorators, among them those that Cython turns into C
functions, are left as they are; so are texts of the log and of errors, and assertions.
"""

import argparse
import contextlib
import hashlib
import math
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
MEMORY: Final = Path("/dev/shm")
HERE: Final = Path(__file__).parent
TREES: Final = ROOT / "build" / "mutants"
LEFT_OUT: Final = ("__pycache__", "*.c", "interop", "data")
SURVIVED: Final = ("survived", "no tests")
PLUGINS: Final = ("tests.mutants.forked", "no:cacheprovider", "no:unraisableexception")
SETTINGS: Final = """
[tool.mutmut]
source_paths = ["src"]
do_not_mutate_patterns = ['\\blog\\.(debug|info|warning|error|exception)\\(', '^\\s*assert\\b', '\\braise \\w+\\(']
"""


class Change(NamedTuple):
    """What a mutant changes, in words that stay the same when lines around it move."""

    module: str  # e.g. maxq.store.log.commit_log
    function: str  # Class.method, or a function's name
    removed: tuple[str, ...]  # lines without indentation
    added: tuple[str, ...]


@dataclass
class Score:
    """What became of the mutants of a module."""

    module: str
    made: int
    outcomes: Counter[str]  # of those that ran, mutmut's words
    survivors: list[Change]  # without an explanation
    seconds: float  # a mutant

    @property
    def ran(self) -> int:
        return sum(self.outcomes.values())

    @property
    def survived(self) -> int:
        return sum(self.outcomes[what] for what in SURVIVED)

    def row(self) -> str:
        found = self.outcomes["killed"]
        late = self.ran - found - self.survived
        rate = (found + late) / self.ran if self.ran else 0.0
        looked_at = self.survived - len(self.survivors)
        return (
            f"| `{self.module}` | {self.made} | {self.ran} | {found} | {late} | {looked_at} | {len(self.survivors)} |"
            f" {rate:.0%} | {self.seconds:.1f} |"
        )


HEAD: Final = (
    "| module | mutants | run | killed | timed out | survived, explained | survived, not looked at | score |"
    " s a mutant |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


@dataclass
class Run:
    """Modules that the same tests are to notice changes of."""

    name: str
    room: str
    modules: list[str]
    tests: list[str]  # files and folders


def runs() -> list[Run]:
    """All that `modules.toml` lists."""
    rooms = tomllib.loads((HERE / "modules.toml").read_text())
    return [Run(f"{room}.{name}", room, **run) for room, some in rooms.items() for name, run in some.items()]


def source_of(module: str) -> str:
    """The file of a module, below the tree."""
    return f"src/{module.replace('.', '/')}.py"


def explained(text: str) -> set[Change]:
    """Read survivors with reasons: `module function`, changes as lines with - and +, and a line `= reason`.

    Raises:
        ValueError: changes without a reason, or a line that is none of these.
    """
    found: set[Change] = set()
    module = function = ""
    pending: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        if not line or mark == "#":
            continue
        if mark == "-":
            if not pending or pending[-1][1]:
                pending.append(([], []))
            pending[-1][0].append(rest)
        elif mark == "+":
            if not pending:
                pending.append(([], []))
            pending[-1][1].append(rest)
        elif mark == "=" and rest and pending:
            found |= {Change(module, function, tuple(removed), tuple(added)) for removed, added in pending}
            pending = []
        elif not pending and len(line.split()) == 2:
            module, function = line.split()
        else:
            raise ValueError(f"explained.txt: neither a change nor a reason: {line!r}")
    if pending:
        raise ValueError(f"explained.txt: no reason for a change of {module} {function}")
    return found


def is_of_source(change: Change) -> bool:
    """Returns whether the module has the lines that a change removes."""
    return set(change.removed) <= {line.strip() for line in (ROOT / source_of(change.module)).read_text().splitlines()}


def changes_of(diff: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines that a unified diff removes and adds, without indentation."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    return (
        tuple(line[1:].strip() for line in lines if line.startswith("-")),
        tuple(line[1:].strip() for line in lines if line.startswith("+")),
    )


def sample(names: Iterable[str], share: float, least: int = 0) -> list[str]:
    """Choose a share of the mutants, and not fewer than `least`; the same ones each time, and more contain fewer."""
    ordered = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    return ordered[: max(math.ceil(len(ordered) * share), least)]


@contextlib.contextmanager
def in_tree(tree: Path) -> Iterator[None]:
    """Stand in a tree with mutmut's settings: it reads them when it is imported."""
    with contextlib.chdir(tree):
        from mutmut.configuration import reset_config

        reset_config()
        yield


def prepare(tree: Path, sources: list[str]) -> None:
    """Put what is mutated into `tree`, and into `mutants` there, where mutmut writes it anew, everything it needs."""

    def copy(source: str, target: str) -> None:
        if not os.path.exists(target) or os.path.getmtime(target) < os.path.getmtime(source):
            shutil.copy2(source, target)

    # Compiled modules call one another without Python: either all of them are, or none.
    compiled = ("*.so",) if any(source.endswith("_cy.py") for source in sources) else ()
    ignore = shutil.ignore_patterns(*LEFT_OUT, *compiled)
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tree / "mutants" / folder, ignore=ignore, dirs_exist_ok=True, copy_function=copy)
    for source in sources:
        (tree / source).parent.mkdir(parents=True, exist_ok=True)
        copy(str(ROOT / source), str(tree / source))
    data = tree / "mutants" / "tests" / "data"
    if not data.exists():
        data.symlink_to(ROOT / "tests" / "data")
    for folder in (tree, tree / "mutants"):
        (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + SETTINGS)


def outcomes_of(tree: Path, source: str) -> dict[str, str]:
    """Mutant → what became of it (`not checked`: it has not run)."""
    with in_tree(tree):
        from mutmut.mutation.data import SourceFileMutationData
        from mutmut.stats import status_by_exit_code

        data = SourceFileMutationData(path=source)
        data.load()
        return {name: status_by_exit_code[code] for name, code in data.exit_code_by_key.items()}


def make_mutants(tree: Path, source: str) -> None:
    """Write the module with all its mutants, unless that is there; those of functions that changed have not run."""
    with in_tree(tree):
        from mutmut.__main__ import create_file_mutants

        with contextlib.redirect_stdout(None):
            made = create_file_mutants(Path(source))
        if made.error:
            raise made.error


def change_of(tree: Path, source: str, module: str, name: str) -> Change:
    """What a mutant changes."""
    with in_tree(tree):
        from mutmut.mutation.diff_apply import get_diff_for_mutant
        from mutmut.utils.format_utils import orig_function_and_class_names_from_key

        function, owner = orig_function_and_class_names_from_key(name)
        removed, added = changes_of(get_diff_for_mutant(name, path=source))
    return Change(module, f"{owner}.{function}" if owner else function, removed, added)


def try_mutants(tree: Path, tests: list[str], names: list[str]) -> dict[str, int]:
    """Try these mutants against the tests (forked.py); returns what became of each, in mutmut's numbers.

    Raises:
        SystemExit: it ends with an error, for example because the tests fail without any mutant.
    """
    asked = tree / "asked"
    asked.write_text("\n".join(names))
    outcomes = asked.with_suffix(".outcomes")
    outcomes.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-s", "-m", "not slow", *(f"-p{plugin}" for plugin in PLUGINS), *tests]
    temporary = (MEMORY if MEMORY.is_dir() else tree) / f"maxq-mutants-{os.getpid()}"  # no test waits for a disk
    command.append(f"--basetemp={temporary}")
    environment = {**os.environ, "PYTHONPATH": "src", "MUTANTS": str(asked)}
    log = tree / "pytest.log"
    with log.open("w") as output:
        done = subprocess.run(
            command, cwd=tree / "mutants", env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    shutil.rmtree(temporary, ignore_errors=True)
    if done.returncode:
        print(log.read_text()[-4000:])
        raise SystemExit(f"the tests ended with {done.returncode}; all they said is in {log}")
    return {name: int(code) for name, code in map(str.split, outcomes.read_text().splitlines())}


def note(tree: Path, source: str, outcomes: dict[str, int]) -> None:
    """Put what became of mutants where `outcomes_of` looks for it."""
    with in_tree(tree):
        from mutmut.mutation.data import SourceFileMutationData

        data = SourceFileMutationData(path=source)
        data.load()
        data.exit_code_by_key |= {name: code for name, code in outcomes.items() if name in data.exit_code_by_key}
        data.save()


def scores(run: Run, asked: list[str], share: float, least: int, again: bool, known: set[Change]) -> list[Score]:
    """Run the mutants of these modules, or with `again` those that survived the last time or were not in it."""
    tree = TREES / run.name
    if not again:
        shutil.rmtree(tree, ignore_errors=True)
    sources = {module: source_of(module) for module in asked}
    prepare(tree, list(sources.values()))
    wanted: list[str] = []
    chosen: dict[str, list[str]] = {}
    for module, source in sources.items():
        make_mutants(tree, source)
        before = outcomes_of(tree, source)
        chosen[module] = sample(before, share, least)
        wanted += [name for name in chosen[module] if before[name] in ("not checked", *SURVIVED)]
    start = time.monotonic()
    if wanted:
        came = try_mutants(tree, run.tests, wanted)
        for source in sources.values():
            note(tree, source, came)
    seconds = (time.monotonic() - start) / max(len(wanted), 1)
    found = []
    for module, source in sources.items():
        every = outcomes_of(tree, source)
        outcomes = {name: every[name] for name in chosen[module] if every[name] != "not checked"}
        survivors = [change_of(tree, source, module, name) for name, what in outcomes.items() if what in SURVIVED]
        unknown = [change for change in survivors if change not in known]
        found.append(Score(module, len(every), Counter(outcomes.values()), unknown, seconds))
    return found


def show(survivors: list[Change]) -> None:
    """Print survivors as `explained.txt` has them."""
    for place in dict.fromkeys((change.module, change.function) for change in survivors):
        print("\n" + " ".join(place))
        for change in survivors:
            if (change.module, change.function) == place:
                print(*(f"- {line}" for line in change.removed), *(f"+ {line}" for line in change.added), sep="\n")


def main() -> None:
    listed = runs()
    rooms = list(dict.fromkeys(run.room for run in listed))
    parser = argparse.ArgumentParser(description="Mutation testing of the modules of weight.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"or a room: {', '.join(rooms)}")
    parser.add_argument("--share", type=float, default=1.0, help="of each module's mutants that run (default: all)")
    parser.add_argument("--least", type=int, default=0, metavar="N", help="run N of each module if the share is fewer")
    parser.add_argument("--again", action="store_true", help="only those that survived the last run or were not in it")
    options = parser.parse_args()
    places = {*rooms, *(run.name for run in listed), *(module for run in listed for module in run.modules)}
    if missing := [one for one in options.modules if one not in places]:
        parser.error(f"not in modules.toml: {', '.join(missing)}")
    wanted = options.modules or rooms
    known = explained((HERE / "explained.txt").read_text())
    for change in sorted(known):
        if not is_of_source(change):
            print(f"explained.txt: not in the source: {change}")
    rows = []
    for run in listed:
        asked = run.modules if {run.room, run.name} & {*wanted} else [one for one in run.modules if one in wanted]
        for one in scores(run, asked, options.share, options.least, options.again, known) if asked else ():
            show(one.survivors)
            rows.append(one.row())
            print(f"\n{HEAD}\n{rows[-1]}", flush=True)
    print(f"\n{HEAD}", *rows, sep="\n")


if __name__ == "__main__":
    main()
