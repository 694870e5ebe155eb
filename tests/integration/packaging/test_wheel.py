"""The wheel built from the tree installs into an empty environment, brings only what a broker needs, and runs."""

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import maxq

ROOT = Path(__file__).parents[3]
TRANSLATED = ROOT / "build" / "cython"
NEEDED = {"maxq", "uvloop", "orjson", "zstandard", "lz4", "cryptography", "typer", "rich"}
NOT_WANTED = {"pyspark", "pyarrow", "pandas", "pytest", "mypy", "cython"}
DISCOVERED = {"pyspark_maxq", "pyspark_maxq_store", "pyspark_maxq_cluster"}  # by Spark, as its formats
SESSION = """
import maxq
from maxq.api import Message, Producer
with maxq.Standalone() as mq, Producer("packaging", mq.namesrv_address) as producer:
    print(producer.send(Message("T", b"from a wheel")).send_status.name)
"""


def quick_compiler(folder: Path) -> Path:
    """The machine's, which optimises nothing: whether modules are fast is not asked here, and takes two minutes."""
    script = folder / "quick-cc"
    script.write_text('#!/bin/sh\nexec cc "$@" -O0\n')  # of several levels the last one counts
    script.chmod(0o755)
    return script


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git has, so that nothing built before slips in."""
    folder = tmp_path_factory.mktemp("source")
    source = folder / "source"
    source.mkdir()
    archive = folder / "source.tar"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    with tarfile.open(archive, "w") as tar:
        for name in filter(None, files):
            path = ROOT / os.fsdecode(name)
            if path.exists():
                tar.add(path, os.fsdecode(name))
    with tarfile.open(archive) as tar:
        tar.extractall(source, filter="data")  # with the times of the files
    return source


def build(kind: str, source: Path, folder: Path, **environment: str) -> Path:
    """Build the archive of this kind (`--wheel`, `--sdist`) into a folder that is empty."""
    command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this machine, with what set-up has compiled of just these modules: what is older than its source is
    made anew."""
    if TRANSLATED.is_dir():
        shutil.copytree(TRANSLATED, source / TRANSLATED.relative_to(ROOT))
    built_before = source / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for module in (ROOT / "src").rglob("*.so"):
        copy = built_before / module.relative_to(ROOT / "src")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(module, copy)
    compiler = {}
    if shutil.which("cc"):
        script = quick_compiler(tmp_path_factory.mktemp("compiler"))
        compiler = {"MAXQ_REQUIRE_COMPILED": "1", "CC": str(script)}
    return build("--wheel", source, tmp_path_factory.mktemp("wheel"), **compiler)


@pytest.fixture(scope="module")
def empty_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(folder)
    python = folder / "bin" / "python"
    command = [*pip_of(python), "install", "-q", "--no-compile", str(wheel)]  # a tenth of the modules is loaded here
    alone = {**os.environ, "PYTHONPATH": ""}  # what pip finds there it would not install
    done = subprocess.run(command, env=alone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode and "Could not find a version" in done.stdout:
        pytest.skip(f"no package index can be reached: {done.stdout.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stdout[-3000:]
    return python


def pip_of(python: Path) -> list[str]:
    """This environment's pip, at work in that of another Python, which needs none of its own."""
    return [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]


def test_wheel_holds_sources_types_and_compiled_modules(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"maxq/py.typed", "maxq/store/log/log_cy.py", "maxq/store/log/log_cy.pyi", "maxq/cli/app.py"} <= set(names)
    (entry_points,) = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
    assert b"[pytest11]\nmaxq = maxq.testing.pytest_plugin\n" in zipfile.ZipFile(wheel).read(entry_points)
    data = {"maxq/pipeline/log4j2.properties", "maxq/config/accepted_settings.tsv"}
    assert data | {"maxq/arrow/columns_cy.pyi"} <= set(names)
    assert {name.split("/")[0] for name in names if name.startswith("pyspark_")} == DISCOVERED
    assert not [name for name in names if name.startswith(("tests/", "benches/", "examples/"))]
    if shutil.which("cc"):
        compiled = {name.split(".")[0] for name in names if name.endswith(".so")}
        source = ROOT / "src"
        hot = {path.relative_to(source).with_suffix("").as_posix() for path in source.rglob("*_cy.py")}
        assert compiled == hot | {"maxq/cython_shared"}


def test_metadata_says_what_it_is_and_needs(wheel: Path) -> None:
    (name,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA")]
    facts = email.message_from_bytes(zipfile.ZipFile(wheel).read(name))
    assert (facts["Name"], facts["Requires-Python"], facts["License-Expression"]) == ("maxq", ">=3.11", "Apache-2.0")
    needed = [text for text in facts.get_all("Requires-Dist") or [] if "extra ==" not in text]
    assert {re.split(r"[<>=; ]", text)[0].lower() for text in needed} >= NEEDED - {"maxq"}
    assert next(text for text in needed if text.startswith("uvloop")).endswith('platform_system != "Windows"')
    assert facts.get_payload().startswith("# "), "the README"
    assert facts["Description-Content-Type"] == "text/markdown"
    assert facts.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert "Programming Language :: Python :: 3.14" in facts.get_all("Classifier")
    assert facts["Version"] == maxq.__version__


@pytest.mark.slow  # compiles everything once more
def test_the_source_archive_builds_and_gives_the_same_files(wheel: Path, source: Path, tmp_path: Path) -> None:
    for folder in ("sdist", "unpacked", "pure"):
        (tmp_path / folder).mkdir()
    sdist = build("--sdist", source, tmp_path / "sdist", MAXQ_PURE="1")
    with tarfile.open(sdist) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    there = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*")}
    assert {"pyproject.toml", "setup.py", "README.md", "src/maxq/store/log/tails_cy.pxd"} <= there
    assert not [name for name in there if name.endswith((".so", ".c"))]
    pure = build("--wheel", unpacked, tmp_path / "pure", MAXQ_PURE="1")
    assert pure.name.endswith("-py3-none-any.whl")
    assert files_of(pure) == {name for name in files_of(wheel) if not name.endswith(".so")}


def files_of(wheel: Path) -> set[str]:
    """What a wheel installs."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_empty_environment_gets_what_a_broker_needs_and_no_more(empty_python: Path) -> None:
    command = [*pip_of(empty_python), "list", "--format=freeze"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    installed = {line.split("==")[0].lower() for line in text.splitlines()}
    assert installed >= NEEDED
    assert not installed & NOT_WANTED


def test_standalone_sends_and_stores_in_the_empty_environment(empty_python: Path, tmp_path: Path) -> None:
    done = subprocess.run([str(empty_python), "-c", SESSION], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("SEND_OK", 0), done.stderr


def test_command_line_answers_in_the_empty_environment(empty_python: Path, tmp_path: Path) -> None:
    command = [str(empty_python.parent / "maxq"), "broker", "-p"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "brokerName=" in done.stdout, done.stderr


def test_without_compiled_modules_everything_still_works(wheel: Path, empty_python: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "pure"
    zipfile.ZipFile(wheel).extractall(unpacked)
    for module in unpacked.rglob("*.so"):
        module.unlink()
    probe = "import maxq.store.log.log_cy as m; assert m.__file__.endswith('.py'), m.__file__\n"
    environment = dict(os.environ, PYTHONPATH=str(unpacked))
    command = [str(empty_python), "-c", probe + SESSION]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("SEND_OK", 0), done.stderr
