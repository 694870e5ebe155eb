"""Wheels with compiled modules are made of the pure one."""

import base64
import csv
import hashlib
import zipfile
from pathlib import Path

import pytest
from wheels.build import GLIBC, MACHINES, VERSIONS, main
from wheels.headers import headers
from wheels.wheel_file import compiled_wheel

WHEEL = "Wheel-Version: 1.0\nGenerator: setuptools (84)\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n"
TAGS = ["cp312-cp312-manylinux_2_17_aarch64", "cp312-cp312-manylinux2014_aarch64"]


def pure_wheel(folder: Path) -> Path:
    made = folder / "maxq-1.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("maxq/a_cy.py", "x = 1\n")
        archive.writestr("maxq-1.0.dist-info/WHEEL", WHEEL)
        archive.writestr("maxq-1.0.dist-info/METADATA", "Name: maxq\nVersion: 1.0\n")
        archive.writestr("maxq-1.0.dist-info/RECORD", "maxq/a_cy.py,,\n")
    return made


def test_it_has_the_modules_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    made = compiled_wheel(
        pure_wheel(tmp_path), {"maxq/a_cy.cpython-312-aarch64-linux-gnu.so": b"ELF"}, TAGS, tmp_path / "out"
    )
    assert made.name == "maxq-1.0-cp312-cp312-manylinux_2_17_aarch64.manylinux2014_aarch64.whl"
    with zipfile.ZipFile(made) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert files["maxq/a_cy.cpython-312-aarch64-linux-gnu.so"] == b"ELF"
    described = files["maxq-1.0.dist-info/WHEEL"].decode().splitlines()
    assert described == [
        "Wheel-Version: 1.0", "Generator: setuptools (84)", "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in TAGS)
    ]  # fmt: skip


def test_its_record_is_right(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    made = compiled_wheel(pure_wheel(tmp_path), {"maxq/a_cy.so": b"ELF"}, TAGS, tmp_path / "out")
    with zipfile.ZipFile(made) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    rows = {row[0]: row[1:] for row in csv.reader(files["maxq-1.0.dist-info/RECORD"].decode().splitlines())}
    assert rows.pop("maxq-1.0.dist-info/RECORD") == ["", ""]
    assert rows == {
        name: ["sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("="), str(len(data))]
        for name, data in files.items()
        if not name.endswith("RECORD")
    }


def test_one_source_gives_one_archive(tmp_path: Path) -> None:
    made = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        made.append(compiled_wheel(pure_wheel(folder), {"maxq/a_cy.so": b"ELF"}, TAGS, folder).read_bytes())
    assert made[0] == made[1]


def test_the_default_is_every_version_on_every_kind_of_processors() -> None:
    assert (VERSIONS, MACHINES, GLIBC) == (("3.11", "3.12", "3.13", "3.14"), ("x86_64", "aarch64"), "2.17")


def test_headers_that_are_given_are_taken(tmp_path: Path) -> None:
    (tmp_path / "Python.h").touch()
    assert headers("3.99", {"3.99": tmp_path}) == tmp_path
    assert headers("3.99", {}) is None


def test_a_version_without_headers_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheels.build.fetch", lambda versions: None)
    monkeypatch.setattr("sys.argv", ["wheels.build", "--versions", "3.11", "3.99", "--out", str(tmp_path / "dist")])
    with pytest.raises(SystemExit, match=r"no headers of Python 3\.99: .*--headers 3\.N=DIR.*--versions"):
        main()
    assert not (tmp_path / "dist").exists()
