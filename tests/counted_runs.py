"""Files that count the seeds that campaigns have run, so that each session goes on where the last one ended."""

import fcntl
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Run:
    """Seeds [first, last] of a kind that one session ran on one version of the code."""

    kind: str
    first: int
    last: int
    code: str
    failed: list[int] = field(default_factory=list)

    @classmethod
    def parse(cls, line: str) -> "Run":
        kind, first, last, code, *failed = line.split()
        return cls(kind, int(first), int(last), code, [int(seed) for seed in failed])

    def __str__(self) -> str:
        return " ".join([self.kind, str(self.first), str(self.last), self.code, *map(str, sorted(self.failed))])


class Count:
    """The file of runs, which sessions add to. A line of it: kind, first and last seed, commit, the seeds that failed;
    `+` behind the commit says that the tree had changes that were not committed.

    One process at a time counts in a file: another one ends with a message.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = path.open()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another campaign counts in {path}")
        self._code = _commit(path)
        lines = path.read_text().splitlines()
        self._head = [line for line in lines if line.startswith("#")]
        self.runs = [Run.parse(line) for line in lines if line and not line.startswith("#")]
        self._now: dict[str, Run] = {}

    def next_seed(self, kind: str) -> int:
        """The first one that no session has come to."""
        return max((run.last + 1 for run in self.runs if run.kind == kind), default=0)

    def passed(self, kind: str) -> int:
        """Different seeds; one that failed once does not count."""
        seeds: set[int] = set()
        for run in self.runs:
            if run.kind == kind:
                seeds.update(range(run.first, run.last + 1))
        return len(seeds.difference(*(run.failed for run in self.runs if run.kind == kind)))

    def add(self, kind: str, seed: int, *, failed: bool) -> None:
        """One more seed. Those of a kind are begun in order, and end nearly so."""
        run = self._now.get(kind)
        if run is None:
            run = self._now[kind] = Run(kind, seed, seed, self._code)
            self.runs.append(run)
        run.first, run.last = min(run.first, seed), max(run.last, seed)
        if failed:
            run.failed.append(seed)

    def save(self) -> None:
        """Runs of one kind stand together, so that what two sessions add seldom meets in a merge."""
        rows = sorted(self.runs, key=lambda run: (run.kind, run.first))
        self._path.write_text("\n".join([*self._head, *map(str, rows)]) + "\n")


def _commit(counted: Path) -> str:
    """The commit of this tree, with `+` if it has changes besides what is counted in the file `counted`."""
    changes = ("status", "--porcelain", "--untracked-files=no", "--", ":/", f":!{counted.name}")
    commit, changed = (
        subprocess.run(("git", *command), cwd=counted.parent, check=True, capture_output=True, text=True).stdout.strip()
        for command in (("rev-parse", "--short", "HEAD"), changes)
    )
    return commit + "+" * bool(changed)
