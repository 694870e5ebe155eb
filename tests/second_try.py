"""A test that failed beside the rest of the suite is tried once more, and its failure is shown even if that passes.

Most tests run real processes, sockets and clocks, three at a time on two cores. Those that say whether messages survive
have no second try: what they see once is a fault of the product, and so is what a seed finds. Those beside Java's
servers have none either, for it would meet the topics, groups and dead brokers of the first.
"""

from collections.abc import Sequence

import pytest

_NO_SECOND_TRY = ("tests/simulation/", "torture", "crash", "power_loss", "kill", "recover")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Every test that may be repeated says so."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        if not any(word in file for word in _NO_SECOND_TRY) and not item.get_closest_marker("interop"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The first failures of tests that were repeated, whatever became of them then."""
    repeated: list[pytest.TestReport] = terminalreporter.getreports("rerun")
    if repeated:
        terminalreporter.section("failed once and were repeated: find out why", yellow=True)
    for report in repeated:
        terminalreporter.line(f"{report.nodeid} ({report.when})")
        terminalreporter.line(report.longreprtext)
