"""`maxq admin haStatus` prints what mqadmin's HAStatusSubCommand does."""

import inspect
from types import SimpleNamespace
from typing import Any, cast

import pytest

from maxq.cli.admin.replication import ha_status
from maxq.cli.terminal.report import Report
from maxq.client.admin.admin import Admin
from maxq.errors import ClientError
from maxq.protocol.body.ha_runtime_info import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from tests.json_output import check_output

MASTER = HARuntimeInfo(
    master=True,
    master_commit_log_max_offset=5000,
    in_sync_slave_nums=1,
    ha_connection_info=[
        HAConnectionRuntimeInfo("10.0.0.2:40000", 4000, 1000, True, 2048, 4500),
        HAConnectionRuntimeInfo("10.0.0.3:40000", 0, 5000, False, 0, -1),
    ],
)
SLAVE = HARuntimeInfo(
    ha_client_runtime_info=HAClientRuntimeInfo("10.0.0.1:10912", 1536, 4000, 0, 0, 3900),
)


async def ask(*infos: HARuntimeInfo) -> Report:
    answers = {f"broker{number}:10911": info for number, info in enumerate(infos)}

    async def one(address: str) -> HARuntimeInfo:
        return answers[address]

    async def masters(cluster: str) -> list[str]:
        return list(answers)

    admin = SimpleNamespace(brokers=SimpleNamespace(ha_status=one, masters_of_cluster=masters))
    return await ha_status(cast(Admin, admin), cluster="C")


async def test_a_master_is_printed_as_mqadmin_does() -> None:
    text = (await ask(MASTER)).text
    assert text is not None
    lines = text.splitlines()
    assert lines[:5] == [
        "", "#MasterAddr\tbroker0:10911", "#MasterCommitLogMaxOffset\t5000", "#SlaveNum\t2", "#InSyncSlaveNum\t1",
    ]  # fmt: skip
    assert lines[5].split() == [
        "#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere",
    ]  # fmt: skip
    assert lines[6] == "10.0.0.2:40000".ljust(32) + "  4000" + " " * 12 + (
        " " + "1000".rjust(16) + " " + "2.00".rjust(16) + " " + "OK".rjust(16) + " " + "4500".rjust(16)
    )
    assert lines[7].split() == ["10.0.0.3:40000", "0", "5000", "0.00", "Fall", "Behind", "-1"]


async def test_a_slave_is_printed_as_mqadmin_does() -> None:
    assert (await ask(SLAVE)).text == (
        "\n#MasterAddr\t10.0.0.1:10912\n#CommitLogMaxOffset\t4000\n#TransferSpeed(KB/s)\t1.50\n"
        "#LastReadTime\t\n#LastWriteTime\t\n#MasterFlushOffset\t3900\n"
    )


async def test_other_forms_have_a_row_for_each_slave_and_the_wire_body_as_json() -> None:
    report = await ask(MASTER, SLAVE, HARuntimeInfo(master=True))
    assert [(row[0], row[1], row[3], row[5], row[7]) for row in report.rows] == [
        ("broker0:10911", "master", "10.0.0.2:40000", 1000, "OK"),
        ("broker0:10911", "master", "10.0.0.3:40000", 5000, "Fall Behind"),
        ("broker1:10911", "slave", "10.0.0.1:10912", "", ""),
        ("broker2:10911", "master", "", "", ""),
    ]
    value: Any = report.objects()
    assert value["broker0:10911"]["haConnectionInfo"][0]["transferredByteInSecond"] == 2048
    check_output("admin haStatus", value)


async def test_a_cluster_whose_masters_are_gone_is_an_error_that_names_the_way_to_a_slave() -> None:
    with pytest.raises(ClientError, match=r"no broker of cluster C is a master now; .*clusterList.* -b asks one"):
        await ask()


def test_an_interval_repeats_until_the_command_is_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from maxq.cli.admin import command, replication

    class Ended(Exception):
        pass

    class FakeAdmin:
        asked = 0

        def __init__(self, *_: Any) -> None:
            self.brokers = SimpleNamespace(ha_status=self.ask)

        async def __aenter__(self) -> "FakeAdmin":
            return self

        async def __aexit__(self, *_: Any) -> None:
            pass

        async def ask(self, address: str) -> HARuntimeInfo:
            FakeAdmin.asked += 1
            if FakeAdmin.asked == 3:
                raise Ended
            return SLAVE

    monkeypatch.setattr(command, "Admin", FakeAdmin)
    (run,) = [entry.callback for entry in replication.app.registered_commands if entry.name == "haStatus"]
    assert run is not None
    with pytest.raises(Ended):
        given = {name: option.default for name, option in inspect.signature(run).parameters.items()}
        run(**given | {"broker": "b:1", "interval": 0.001, "as_json": True})
    assert capsys.readouterr().out.count("haClientRuntimeInfo") == 2
