"""Forms of output."""

import json

import pytest

from maxq.cli.terminal.report import Report, Style, pairs_report, show

REPORT = Report(
    {"brokerName": "#Broker Name", "on": "#On", "rate": "#Rate"}, [("a", True, 1.5), ("long-name", False, None)]
)


def shown(capsys: pytest.CaptureFixture[str], report: Report, style: Style) -> str:
    show(report, style)
    return capsys.readouterr().out


def test_text_is_padded_under_heads_that_begin_with_a_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, REPORT, Style.TEXT).splitlines() == [
        "#Broker Name  #On    #Rate",
        "a             true   1.50",
        "long-name     false  -",
    ]


def test_json_keeps_types(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(shown(capsys, REPORT, Style.JSON)) == [
        {"brokerName": "a", "on": True, "rate": 1.5},
        {"brokerName": "long-name", "on": False, "rate": None},
    ]


def test_csv_has_json_names_as_head(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, REPORT, Style.CSV).splitlines() == ["brokerName,on,rate", "a,true,1.50", "long-name,false,-"]


def test_table_shows_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, REPORT, Style.TABLE)
    assert "Broker Name" in text and "long-name" in text


def test_pairs_are_an_object_in_json_and_padded_lines_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    report = pairs_report({"putTps": "1 2"})
    assert json.loads(shown(capsys, report, Style.JSON)) == {"putTps": "1 2"}
    assert shown(capsys, report, Style.TEXT) == "putTps".ljust(32) + ": 1 2\n"


def test_a_table_shows_what_looks_like_markup_and_cuts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    report = Report({"key": "#Key", "id": "#Id"}, [("[/b] [red]k", "FD" * 40)])
    text = shown(capsys, report, Style.TABLE)
    cells = [line.split("│")[1:3] for line in text.splitlines() if "│" in line]
    assert "".join(key.strip() for key, _ in cells).replace(" ", "") == "[/b][red]k"
    assert "".join(cell.strip() for _, cell in cells) == "FD" * 40
