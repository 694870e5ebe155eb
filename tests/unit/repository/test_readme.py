"""README.md and README.zh.md say the same, keep to their length, and show the figures of the last results."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from benches import readme_figures

ROOT = Path(__file__).parents[3]
PAGES = ("README.md", "README.zh.md")
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)|srcset=\"([^\"]+)\"|src=\"([^\"]+)\"")


def _text(page: str) -> str:
    return (ROOT / page).read_text()


def _outline(text: str) -> list[str]:
    """What kind of line each line is, so that two languages can be compared."""
    kinds = []
    code = False
    for line in text.splitlines():
        code ^= line.startswith("```")
        if code or line.startswith(("    ", "```", "<")):
            kinds.append("code")
        elif line.startswith("#"):
            kinds.append(line.split()[0])
        else:
            kinds.append(line[:1] if line.startswith(("|", "* ")) else "text" if line else "")
    return kinds


def _links(page: str) -> list[str]:
    """Where the page's links lead; a Chinese page of the manual counts as the English one."""
    found = [next(part for part in parts if part) for parts in _LINK.findall(_text(page)) if any(parts)]
    return [link.replace("docs/zh/", "docs/") for link in found]


@pytest.mark.parametrize("page", PAGES)
def test_a_first_page_is_short(page: str) -> None:
    assert len(_text(page).splitlines()) <= 170


def test_both_languages_have_the_same_lines_in_the_same_order() -> None:
    english, chinese = (_outline(_text(page)) for page in PAGES)
    assert english == chinese


def test_both_languages_link_to_the_same_places_and_show_the_same_commands() -> None:
    english, chinese = ({link for link in _links(page) if not link.startswith(("#", "README"))} for page in PAGES)
    assert english == chinese


def test_both_languages_show_the_same_commands() -> None:
    english, chinese = (
        re.findall(r"^ {4}\$ .*|(?<=`)(?:maxq|make|pip) [^`]*", _text(page), re.MULTILINE) for page in PAGES
    )
    assert len(english) > 10 and english == chinese


@pytest.mark.parametrize(
    ("page", "name", "make"), readme_figures.TABLES, ids=[f"{row[0]}:{row[1]}" for row in readme_figures.TABLES]
)
def test_a_table_of_figures_is_that_of_the_results(page: str, name: str, make: Callable[[], str]) -> None:
    (found,) = readme_figures.place(name).findall((ROOT / page).read_text())
    assert found == make(), "run: python -m benches.readme_figures"


def test_every_file_of_results_says_how_and_where_it_was_measured() -> None:
    for file in readme_figures.RESULTS.glob("*.json"):
        found = json.loads(file.read_text())
        assert {"command", "day", "commit", "machine"} <= found.keys(), file.name
        program = found["command"].split()[1:3]
        script = f"{program[1].replace('.', '/')}.py" if program[0] == "-m" else program[0]
        assert (ROOT / script).is_file() and found["command"].endswith(f"--json benches/results/{file.name}"), file.name


def test_a_section_with_measured_figures_names_their_results() -> None:
    silent = []
    for page in (ROOT / "README.md", ROOT / "README.zh.md", *(ROOT / "docs").rglob("*.md")):
        text = re.sub(r"^```.*?^```|^ {4}.*?$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for section in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
            files = re.findall(r"benches/results/(\w+\.json)?", section)
            if re.search(r"\d ?(?:µs|ns|k/s|[MG]B/s)(?![\w/])", section) and not files:
                silent.append(f"{page.relative_to(ROOT)}: {section.splitlines()[0]}")
            assert all((readme_figures.RESULTS / file).is_file() for file in files if file), files
    assert silent == []


def test_the_pictures_show_the_figures_of_the_results() -> None:
    for name in ("light", "dark"):
        picture = (readme_figures.IMAGES / f"cpu-{name}.svg").read_text()
        for _, file, workload in readme_figures.BARS:
            for system in readme_figures.results(file)["medians"][workload].values():
                if "server_cpu_us_per_msg" in system and "sent_per_s" in system and "server_cores" in system:
                    assert readme_figures.shown(system["server_cpu_us_per_msg"], "us") in picture


def test_the_chinese_page_leads_to_chinese_pages_where_there_are_any() -> None:
    links = [link for parts in _LINK.findall(_text("README.zh.md")) for link in parts if link.startswith("docs/")]
    assert [link for link in links if (ROOT / link.replace("docs/", "docs/zh/", 1)).is_file()] == []
