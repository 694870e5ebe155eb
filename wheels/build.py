"""`make wheels`: the source archive, a pure wheel for every system, and manylinux wheels with compiled modules.

    python -m wheels.build                                  # all versions and both kinds of processors, into dist/
    python -m wheels.build --versions 3.13 --machines x86_64
    python -m wheels.build --pure                           # without compiled modules
    python -m wheels.build --headers 3.14=/opt/python3.14/include/python3.14

The modules are translated to C once and compiled by zig (the package `ziglang`), which brings every version of glibc:
any machine builds for both kinds of processors, and for a Linux as old as the tag says. Each version of Python needs
its headers: those of an interpreter on this machine, else of one that `uv` downloads, else given.
auditwheel then judges each wheel, and `wheels.smoke` installs those that this machine can run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from setup import COMPILE_ARGS, alone, extensions, translate

from wheels.headers import fetch, headers, link_configuration
from wheels.smoke import try_out
from wheels.wheel_file import compiled_wheel

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
GLIBC = "2.17"  # manylinux2014: what every Linux since 2014 has
ROOT = Path(__file__).parents[1]


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(prog="wheels.build", description="Build everything that is published.")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder for the archives")
    parser.add_argument("--versions", nargs="+", default=VERSIONS, help="of Python", metavar="3.N")
    parser.add_argument("--machines", nargs="+", default=MACHINES, choices=MACHINES, help="kinds of processors")
    parser.add_argument("--headers", nargs="+", default=[], metavar="3.N=DIR", help="folders of Python.h")
    parser.add_argument("--pure", action="store_true", help="compile nothing")
    parser.add_argument("--no-smoke", action="store_true", help="install nothing")
    given = parser.parse_args()
    os.chdir(ROOT)
    versions = [] if given.pure else given.versions
    folders, missing = find_headers(versions, dict(_pair(text) for text in given.headers))
    if missing:
        sys.exit(
            f"wheels.build: no headers of Python {', '.join(missing)}: install an interpreter, let `uv python install` "
            "reach its downloads, give --headers 3.N=DIR, or leave the version out with --versions"
        )
    given.out.mkdir(parents=True, exist_ok=True)
    archive("--sdist", given.out)
    pure = archive("--wheel", given.out)
    made = [pure]
    sources = translated() if folders else {}
    for machine in given.machines:
        for version, folder in folders.items():
            made.append(wheel(pure, sources, version, machine, folder, given.out))
            audit(made[-1], machine)
    if not given.no_smoke:
        for path in made:
            print(f"{path.name}: {try_out(path)}", flush=True)


def find_headers(versions: list[str], given: dict[str, Path]) -> tuple[dict[str, Path], list[str]]:
    """The folders of the headers by version, and the versions that have none."""
    fetch([version for version in versions if headers(version, given) is None])
    found = {version: headers(version, given) for version in versions}
    return {version: folder for version, folder in found.items() if folder}, [v for v in versions if not found[v]]


def archive(kind: str, out: Path) -> Path:
    """Build the source archive (`--sdist`) or the pure wheel (`--wheel`)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "MAXQ_PURE": "1"})
        (made,) = Path(folder).iterdir()
        target = out / made.name
        target.write_bytes(made.read_bytes())
    return target


def translated() -> dict[str, Path]:
    """The C file of each module."""
    with alone():
        return {name: Path(sources[0]) for name, sources in translate(extensions(), os.cpu_count()).items()}


def wheel(pure: Path, sources: dict[str, Path], version: str, machine: str, folder: Path, out: Path) -> Path:
    """Compile all modules for one version of Python on one kind of processors."""
    tag = f"cp{version.replace('.', '')}"
    suffix = f".cpython-{version.replace('.', '')}-{machine}-linux-gnu.so"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = pool.map(partial(compile_module, machine=machine, folder=folder), sources.values())
        modules = {name.replace(".", "/") + suffix: data for name, data in zip(sources, objects, strict=True)}
    platforms = (f"manylinux_{GLIBC.replace('.', '_')}_{machine}", f"manylinux2014_{machine}")
    return compiled_wheel(pure, modules, [f"{tag}-{tag}-{platform}" for platform in platforms], out)


def compile_module(source: Path, *, machine: str, folder: Path) -> bytes:
    """The shared object of a C file. The headers may be those of another kind of processors: of what differs in
    `pyconfig.h` between these two, no header that an extension includes makes use."""
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary) / "module.so"
        links = Path(temporary) / "include"
        links.mkdir()
        link_configuration(folder, machine, links)
        command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{GLIBC}", "-shared", "-fPIC"]
        command += [
            *COMPILE_ARGS,
            "-DNDEBUG",
            "-Wno-incompatible-pointer-types-discards-qualifiers",  # what Cython makes of memchr
            "-fwrapv",
            "-Wl,-s",
            f"-I{folder}",
            f"-I{links}",
            "-o",
            str(made),
            str(source),
        ]
        subprocess.run(command, check=True)
        return made.read_bytes()


def audit(path: Path, machine: str) -> None:
    """Have auditwheel judge a wheel; an error if it is not what its name says."""
    command = [sys.executable, "-m", "auditwheel", "show", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    wanted = f'"manylinux_{GLIBC.replace(".", "_")}_{machine}"'
    if done.returncode or wanted not in " ".join(done.stdout.split()):
        sys.exit(f"wheels.build: auditwheel does not take {path.name} for {wanted}:\n{done.stdout}{done.stderr}")


def _pair(text: str) -> tuple[str, Path]:
    version, _, folder = text.partition("=")
    return version, Path(folder)


if __name__ == "__main__":
    main()
