"""docs/tutorials/spark.ipynb runs from its first cell to its plot."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIAL = Path(__file__).parents[3] / "docs/tutorials/spark.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[nbformat.NotebookNode]:
    """Its code cells, run in a kernel of their own."""
    notebook = nbformat.read(TUTORIAL, as_version=4)
    folder = str(tmp_path_factory.mktemp("tutorial"))
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")


def the_one_with(cells: list[nbformat.NotebookNode], text: str) -> nbformat.NotebookNode:
    (cell,) = (cell for cell in cells if text in cell.source)
    return cell


def test_tutorial_says_what_its_text_promises(executed: list[nbformat.NotebookNode]) -> None:
    assert "5000 orders sent" in printed(the_one_with(executed, "maxq.Standalone()"))
    assert "|   paid|" in printed(the_one_with(executed, "register(spark"))
    assert "|product|orders|revenue|" in printed(the_one_with(executed, "declare_json"))
    assert "[order-" in printed(the_one_with(executed, "queueOffset < 3"))
    stream = printed(the_one_with(executed, "run_stream() -> int"))
    assert stream.splitlines() == ["first run: 5000 rows in Parquet", "second run: 6000 rows in Parquet"]
    tables = printed(the_one_with(executed, "poll_arrow"))
    assert tables.splitlines() == ["6000 orders in pandas", "True {'SEND_OK'}"]
    assert "|      3|" in printed(the_one_with(executed, "rocketmq-store"))


def test_tutorial_ends_with_a_plot(executed: list[nbformat.NotebookNode]) -> None:
    outputs = the_one_with(executed, "plt.show()").outputs
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_tutorial_prints_nothing_on_standard_error(executed: list[nbformat.NotebookNode]) -> None:
    """Warnings of Spark, pandas or ours would stand between the text and its results."""
    assert [output.text for cell in executed for output in cell.outputs if output.get("name") == "stderr"] == []
