"""Values of `maxq pipeline` that are refused before Spark starts: one line with value and remedy, exit code 2."""

from pathlib import Path

import pytest

from maxq.cli.app import run
from maxq.pipeline.archive.folder import ArchiveFolder

NOBODY = "-n 127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("archive run A -t T --every soon", "'soon' is no time between triggers: give numbers with units, such as '10"),
        ("archive run A -t T --every 10s", "'10s' is no time between triggers"),
        ("replay A --to bad!", "messages can not be sent there: the topic name 'bad!' has characters other than"),
        ("replay A --to T=bad!", "the topic name 'bad!'"),
        (f"replay A --to {'x' * 128}", "the topic name has 128 characters, more than 127"),
        ("dlq redrive g --record r --to-topic bad!", "the topic name 'bad!'"),
    ],
)
def test_refused_in_one_line(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", *arguments.split(), "--master", "local[1]"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("drop table Orders", "DROP TABLE Orders: a table here is a view of a topic"),
        ("DROP TABLE IF EXISTS `a-b`;", "DROP TABLE IF EXISTS `a-b`: a table"),
        ("DELETE FROM Orders WHERE queueId = 0", "maxq admin deleteTopic"),
        ("update Orders set body = 'x'", "UPDATE Orders"),
    ],
)
def test_sql_that_would_change_a_topic_is_refused(query: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", query, *NOBODY.split(), "--master", "local[1]"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_group_starts_at_earliest_latest_or_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume", "T", "--group", "g", "--from", "yesterday", *NOBODY.split()]) == 2
    assert "--from takes earliest, latest, or a time; 'yesterday' is no time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("pipeline audit nowhere", "path 'nowhere' holds no store; give the storePathRootDir of a broker, or a copy"),
        ("pipeline audit file", "path 'file' holds no store"),
        ("pipeline audit queues", "queues has no log: give the storePathRootDir of a broker"),
        ("pipeline rebuild nowhere --in-place", "path 'nowhere' holds no store"),
        ("pipeline rebuild queues --in-place", "queues has no CommitLog files to build from; give"),
        ("pipeline rebuild log -o queues", "queues is not empty, and no rebuild made it: give a folder of its own"),
        ("pipeline rebuild log -o file", "'file' is a file"),
        ("pipeline archive run A --store nowhere", "path 'nowhere' holds no store"),
        (f"pipeline archive run file -t T {NOBODY}", "archive 'file' is a file: name a folder, or a new one"),
        ("pipeline archive verify nowhere", "nowhere holds no archive: there is no _manifest; `archive run` makes"),
        ("pipeline archive verify nowhere --offline", "nowhere holds no archive"),
        ("pipeline archive compact nowhere", "nowhere holds no archive"),
        ("pipeline archive table nowhere t", "nowhere holds no archive"),
        ("pipeline replay nowhere --to T", "nowhere holds no archive"),
        ("pipeline replay --store nowhere --to T", "path 'nowhere' holds no store"),
        ("pipeline replay A --to T --record queues", "'queues' is a directory"),
        ("pipeline stats --store nowhere", "path 'nowhere' holds no store"),
        ("pipeline trace --store nowhere", "path 'nowhere' holds no store"),
        (f"pipeline dlq export queues {NOBODY}", "queues is there already: name a new folder"),
        (f"pipeline dlq export new --format xml {NOBODY}", "format is 'xml'; it must be parquet, json, orc"),
        (f"pipeline dlq redrive g --record queues {NOBODY}", "'queues' is a directory"),
        ("sql --store nowhere SELECT_1", "path 'nowhere' holds no store"),
    ],
)
def test_a_wrong_path_is_told_in_one_line(
    arguments: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("queues/consumequeue/T/0").mkdir(parents=True)
    Path("log/commitlog").mkdir(parents=True)
    Path(f"log/commitlog/{0:020d}").write_bytes(bytes(1 << 16))
    assert run([*arguments.split(), "--master", "local[1]"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "pipeline archive verify _ --offline",
        "pipeline audit _",
        "pipeline rebuild _ --in-place",
        "sql --store _ SELECT_1",
    ],
)
def test_an_empty_path_is_not_the_current_folder(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("commitlog").mkdir()
    Path(f"commitlog/{0:020d}").write_bytes(bytes(1 << 16))
    ArchiveFolder(".").commit(lambda manifest: manifest.changed([]))
    assert run(["" if word == "_" else word for word in arguments.split()]) == 2
    assert "'' " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        f"archive run A -t T {NOBODY}",
        f"archive verify A -t T {NOBODY}",
        f"replay A --to T {NOBODY}",
        f"trace {NOBODY}",
        f"stats -t T {NOBODY}",
        f"dlq show g {NOBODY}",
        f"dlq export E -g g {NOBODY}",
        f"dlq redrive g --record r {NOBODY}",
    ],
)
def test_a_name_server_that_is_not_there_is_told_and_not_waited_for(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ArchiveFolder("A").commit(lambda manifest: manifest.changed([]))
    assert run(["pipeline", *arguments.split()]) == 1
    error = capsys.readouterr().err
    assert "no name server answers (127.0.0.1:1)" in error and "does that server run?" in error
    assert error.count("\n") == 1
