"""The folder that Spark's launcher starts from, such that Python workers import PySpark as it is installed.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` in front of its workers' path. Modules from a zip have no bytecode: each
process compiles PySpark again, 0.65 s of CPU, and a stream starts such a process for every query. Where workers run the
Python of the driver, PySpark is installed for them, too; so sessions of ours get a SPARK_HOME of links to all that the
package has but the folder `python`.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

_VARIABLE: Final = "SPARK_HOME"
_LEFT_OUT: Final = "python"


def make_spark_home(package: Path) -> Path | None:
    """Make a folder that serves as SPARK_HOME; it is made once for each user and PySpark.

    Args:
        package: folder of PySpark.

    Returns:
        None: it cannot be made here, or this PySpark has no complete Spark; Spark then finds its own.
    """
    if not (package / "bin" / "spark-submit").is_file() or not (package / _LEFT_OUT).is_dir():
        return None
    folder = Path(tempfile.gettempdir()) / f"maxq-spark-{os.getuid()}" / f"home-{_name_of(package)}"
    links = {entry.name: entry for entry in package.iterdir() if entry.name != _LEFT_OUT}
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.parent.stat().st_uid != os.getuid() or folder.stat().st_uid != os.getuid():
            return None
        for name, target in links.items():
            _link(folder / name, target)
    except OSError:
        return None
    return folder


def _name_of(package: Path) -> str:
    return hashlib.sha256(os.fsencode(package)).hexdigest()[:12]


def _link(link: Path, target: Path) -> None:
    try:
        if Path(os.readlink(link)) == target:
            return
        link.unlink()
    except FileNotFoundError:
        pass
    try:
        link.symlink_to(target)
    except FileExistsError:  # another session of this user was quicker
        if Path(os.readlink(link)) != target:
            raise


@contextmanager
def own_spark_home() -> Iterator[None]:
    """Set SPARK_HOME for the start of a local session; one that was set stays as it is."""
    home = None if _VARIABLE in os.environ else make_spark_home(Path(pyspark.__path__[0]))
    if home is None:
        yield
        return
    os.environ[_VARIABLE] = str(home)
    try:
        yield
    finally:
        del os.environ[_VARIABLE]
