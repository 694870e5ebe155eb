"""Where the C headers of each version of Python are on this machine."""

import os
import shutil
import subprocess
from pathlib import Path

WHICH = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"  # which a shim of pyenv is not
PROBE = "import sysconfig; print(sysconfig.get_paths()['include'])"


def interpreters(version: str) -> list[Path]:
    """Interpreters of this version, such as `3.12`: on the path, of pyenv, and of uv. The newest of a kind first."""
    homes = [Path.home() / ".pyenv/versions", Path.home() / ".local/share/uv/python"]
    found = [Path(on_path)] if (on_path := shutil.which(f"python{version}")) else []
    for home in homes:
        found += sorted(home.glob(f"*{version}.*/bin/python{version}"), reverse=True)
    answers = [(_answers(path, WHICH) or "").partition(" ") for path in found]
    return [Path(program) for answered, _, program in answers if answered == version]


def headers(version: str, given: dict[str, Path]) -> Path | None:
    """The folder of `Python.h` of this version.

    Args:
        given: version → folder, for versions of which there is no interpreter.

    Returns:
        None: there are none on this machine.
    """
    folders = [given[version]] if version in given else []
    folders += [Path(answer) for path in interpreters(version) if (answer := _answers(path, PROBE))]
    return next((folder for folder in folders if (folder / "Python.h").is_file()), None)


def link_configuration(folder: Path, machine: str, links: Path) -> None:
    """Give `links` what `pyconfig.h` of Debian's Pythons includes: another one, below the name of the processors.

    Args:
        folder: of `Python.h`.
        machine: the kind of processors that is compiled for; the configuration of another kind serves as well.
        links: an empty folder, which the compiler searches for headers, too.
    """
    found = sorted(
        folder.parent.glob(f"*-linux-gnu/{folder.name}"), key=lambda path: path.parent.name[: len(machine)] != machine
    )
    if found:
        (links / f"{machine}-linux-gnu").mkdir()
        (links / f"{machine}-linux-gnu" / folder.name).symlink_to(found[0].absolute())


def fetch(versions: list[str]) -> None:
    """Have uv download interpreters, with their headers; nothing happens if it cannot."""
    if versions and shutil.which("uv"):
        subprocess.run(["uv", "python", "install", "--no-bin", *versions], check=False)


def _answers(python: Path, code: str) -> str | None:
    """What a program prints; None if it fails. A shim of pyenv fails if its version is not chosen."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, env=clean)
    return done.stdout.strip() if done.returncode == 0 else None
