"""What other programs read of the repository (workflows, hooks, forms, the dev container) is in the form that they
want, and calls only targets of make, modules and files that exist."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
#: Steps of others that the workflows use, each by a release.
ACTIONS = {
    f"actions/{name}" for name in ("checkout", "setup-python", "setup-java", "upload-artifact", "download-artifact")
}


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [(f"{path.name}: {name}", job) for path in WORKFLOWS for name, job in loaded(path)["jobs"].items()]


def commands(job: dict[str, Any]) -> list[str]:
    """The lines that a job runs, once for each value of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    axes = {name: values for name, values in matrix.items() if name != "include"}
    rows = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    found = []
    for row, step in itertools.product(rows, job["steps"]):
        for line in step.get("run", "").splitlines():
            found.append(re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda name, row=row: str(row[name[1]]), line))
    return found


def test_there_are_tests_wheels_pages_and_campaigns() -> None:
    assert {path.stem for path in WORKFLOWS} >= {"test", "wheels", "docs", "nightly"}
    run = {line.split()[1] for _, job in jobs() for line in commands(job) if line.startswith("make ")}
    assert run >= {"lint", "pytest", "release", "try-wheels", "docs", "sim", "torture", "hostile", "fuzz", "interop"}


@pytest.mark.parametrize("job", [pytest.param(job, id=name) for name, job in jobs()])
def test_a_job_has_limits_and_runs_what_exists(job: dict[str, Any]) -> None:
    assert {"runs-on", "timeout-minutes", "steps"} <= job.keys()
    for step in job["steps"]:
        assert ("uses" in step) != ("run" in step), step
        if "uses" in step:
            action, _, version = step["uses"].partition("@")
            assert action in ACTIONS and re.fullmatch(r"v\d+", version), step
    for line in commands(job):
        program, *words = line.split()
        assert program in ("make", "python"), line
        if program == "make":
            assert {word for word in words if re.fullmatch(r"[a-z-]+", word)} <= TARGETS, line
            assert words[0] in TARGETS, line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read(path: Path) -> None:
    workflow = loaded(path)
    assert {"name", True, "permissions", "jobs"} <= workflow.keys(), "True is how YAML 1.1 reads `on`"
    assert workflow["permissions"] == {"contents": "read"}


def test_the_matrix_has_every_version_that_the_package_names() -> None:
    versions = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    tested = loaded(ROOT / ".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert tested == versions == ["3.11", "3.12", "3.13", "3.14"]


def test_hooks_call_what_set_up_installs() -> None:
    (repository,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        program, *words = hook["entry"].split()
        assert program in {f".venv/bin/{name}" for name in ("ruff", "lint-imports", "python")}, hook
        assert all((ROOT / word).is_file() for word in words if word.endswith(".py")), hook
        re.compile(hook.get("files", ""))


@pytest.mark.parametrize("path", [path for path in FORMS if path.stem != "config"], ids=lambda path: path.name)
def test_a_form_asks_something(path: Path) -> None:
    form = loaded(path)
    assert {"name", "description", "body"} <= form.keys()
    asked = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in asked}) == len(asked) > 1
    assert any(field.get("validations", {}).get("required") for field in asked)
    assert all(isinstance(option, str) for field in asked for option in field["attributes"].get("options", []))


def test_the_dev_container_is_set_up_by_make() -> None:
    folder = ROOT / ".devcontainer"
    container = json.loads((folder / "devcontainer.json").read_text())
    assert (folder / container["build"]["dockerfile"]).is_file()
    program, target = container["postCreateCommand"].split()
    assert program == "make" and target in TARGETS


def test_every_target_of_make_is_phony_or_a_file_and_is_explained() -> None:
    text = (ROOT / "Makefile").read_text()
    (line,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert set(line.split()) == TARGETS
