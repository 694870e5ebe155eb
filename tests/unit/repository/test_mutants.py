"""The bookkeeping around mutmut: which mutants run, and which survivors have a reason."""

from pathlib import Path

import pytest

from tests.mutants import __main__ as mutants

ROOT = Path(__file__).parents[3]


def test_every_module_and_every_test_of_the_list_is_there() -> None:
    for run in mutants.runs():
        assert [module for module in run.modules if not (ROOT / mutants.source_of(module)).is_file()] == []
        assert [test for test in run.tests if not (ROOT / test).exists()] == []


def test_every_explanation_can_be_read() -> None:
    explained = mutants.explained((ROOT / "tests" / "mutants" / "explained.txt").read_text())
    listed = {module for run in mutants.runs() for module in run.modules}
    assert {change.module for change in explained} <= listed


def test_reasons_stand_below_the_changes_they_are_for() -> None:
    text = (
        "# a remark\na.b C.d\n- x = 1\n+ x = 2\n- y = 1\n- z = 1\n+ y = None\n= no difference\n\n- w\n= none either\n"
    )
    assert mutants.explained(text) == {
        mutants.Change("a.b", "C.d", ("x = 1",), ("x = 2",)),
        mutants.Change("a.b", "C.d", ("y = 1", "z = 1"), ("y = None",)),
        mutants.Change("a.b", "C.d", ("w",), ()),
    }


@pytest.mark.parametrize("text", ["a.b C.d\n- x\n+ y\n", "a.b C.d\n= a reason for nothing\n", "a.b C.d e\n"])
def test_a_change_without_a_reason_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"explained\.txt"):
        mutants.explained(text)


def test_a_change_is_what_the_diff_removes_and_adds() -> None:
    diff = "--- a.py\n+++ a.py\n@@ -1,3 +1,3 @@\n def f():\n-    if a < b:\n+    if a <= b:\n         return\n"
    assert mutants.changes_of(diff) == (("if a < b:",), ("if a <= b:",))


def test_a_larger_share_contains_a_smaller_one() -> None:
    names = [f"m.x_f__mutmut_{number}" for number in range(50)]
    assert len(mutants.sample(names, 0.1)) == 5
    assert set(mutants.sample(names, 0.1)) < set(mutants.sample(names, 0.5)) < set(mutants.sample(names, 1.0))
    assert mutants.sample(names, 0.1, 20) == mutants.sample(names, 0.4) == mutants.sample(names, 0.4, 10)
    assert len(mutants.sample(names, 0, 60)) == 50
