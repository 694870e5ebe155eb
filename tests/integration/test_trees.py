"""Benches that compare two source trees start a server of each."""

import socket
from pathlib import Path

import pytest
from benches.trees import server_of

pytestmark = pytest.mark.slow


def test_the_server_of_a_tree_is_found_where_it_listens(tmp_path: Path) -> None:
    with server_of(Path(__file__).parents[2], tmp_path) as (_, address):
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), 10).close()
