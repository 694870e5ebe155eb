"""What commands print with --json is what `maxq schema` says of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.cli.json_schemas import LINES
from maxq.testing.server_process import StandaloneProcess
from tests.integration.cli.every_command import ENDING, Surroundings, command_of, input_of, takes_json
from tests.integration.cli.harness import maxq
from tests.json_output import check_output

#: Other forms of the same commands.
_MORE = """
admin clusterList -m
admin topicList -c
admin consumerProgress -g G_every
admin printMsgByQueue -t Every -a broker-a -i {queue} -f true
admin statsAll -a
admin updateOrderConf -t EveryOrder -m get
admin resetOffsetByTime -g G_every -t Every -s -1 -b broker-a -q 0 -y
admin queryMsgByUniqueKey -i {unique_id} -t Every -a
admin purgeTopic -t Every -c DefaultCluster --dryRun
admin deleteSubGroup -g G_every_gone -b {broker} -y
admin queryCq -t Every -q {queue} -i 0 -b {broker} -g G_every
transaction list -c DefaultCluster
timer list -c DefaultCluster
store recover {store} --rebuild
consume Every --group G_schemas --max 2
"""
_LINES = [line for line in (ENDING + _MORE).split("\n") if line and takes_json(command_of(line))]


@pytest.fixture(scope="module")
def around(server: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    yield Surroundings(server, tmp_path_factory.mktemp("schemas"))


@pytest.mark.parametrize("line", [line for line in _LINES if not line.startswith("produce")])
def test_a_real_output_is_as_its_schema_says(line: str, around: Surroundings, namesrv: str, tmp_path: Path) -> None:
    command = " ".join(command_of(line))
    done = maxq(*around.words(line), "--json", text=input_of(line), namesrv=namesrv)
    assert done.code == 0, done
    values = [json.loads(text) for text in done.out.splitlines()] if command in LINES else [json.loads(done.out)]
    for value in values:
        check_output(command, value)
