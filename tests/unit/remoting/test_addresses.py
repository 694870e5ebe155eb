"""Names of sockets as text."""

import pytest

from maxq.remoting.addresses import address_text


@pytest.mark.parametrize(
    ("name", "text"),
    [(("1.2.3.4", 5), "1.2.3.4:5"), (("::1", 5, 0, 0), "[::1]:5"), (("::ffff:1.2.3.4", 5, 0, 0), "1.2.3.4:5"),
     (None, ""), ("/tmp/socket", "/tmp/socket")],
)  # fmt: skip
def test_addresses_are_shown_as_host_and_port(name: object, text: str) -> None:
    assert address_text(name) == text
