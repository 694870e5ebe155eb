"""`maxq dledger bless`: a group of one whose vote is lost takes entries again when its operator says so."""

from pathlib import Path

from maxq.testing.server_process import ServerProcess
from tests.integration.cli.harness import maxq
from tests.interop.processes.servers import free_port_base


def test_group_of_one_that_forgot_its_vote_goes_on_when_its_operator_says_so(tmp_path: Path) -> None:
    options = ["dledger", "--group", "g", "--peers", f"n0-127.0.0.1:{free_port_base()}", "--base-dir", str(tmp_path)]
    server = ServerProcess("n0", tmp_path, [*options, "--data-file-size", "65536"])
    server.start()
    index = maxq(*options, "append", "kept").out.split()[0]
    running = maxq(*options, "bless", "--yes")
    assert (running.code, "the member runs. Stop it first" in running.err) == (1, True)
    server.stop()
    well = maxq(*options, "bless", "--yes")
    assert (well.code, "n0 has lost nothing that it knows of: start it" in well.err) == (2, True)
    for name in ("currterm", "currterm.bak"):
        (tmp_path / "dledger-n0" / name).unlink()
    unsure = maxq(*options, "bless", text="n\n")
    assert unsure.code == 130
    assert "its vote is lost" in unsure.out
    blessed = maxq(*options, "bless", "--yes")
    assert (blessed.code, blessed.out.splitlines()[-1]) == (0, "n0 counts as complete; start it")
    server.start()
    try:
        assert maxq(*options, "append", "more").code == 0
        assert "kept" in maxq(*options, "get", index).out
    finally:
        server.stop()
