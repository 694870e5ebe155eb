"""Names of sockets as text, and lists of addresses in settings."""

import pytest

from maxq.errors import ConfigError
from maxq.remoting.addresses import address_list, address_text


@pytest.mark.parametrize(
    ("name", "text"),
    [(("1.2.3.4", 5), "1.2.3.4:5"), (("::1", 5, 0, 0), "[::1]:5"), (("::ffff:1.2.3.4", 5, 0, 0), "1.2.3.4:5"),
     (None, ""), ("/tmp/socket", "/tmp/socket")],
)  # fmt: skip
def test_addresses_are_shown_as_host_and_port(name: object, text: str) -> None:
    assert address_text(name) == text


@pytest.mark.parametrize("wrong", ["10.0.0.0/33", "10.0.0", "localhost", "1.2.3.4;5.6.7.8"])
def test_what_is_no_list_of_addresses_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"someSetting='"):
        address_list("someSetting", wrong)


@pytest.mark.parametrize(
    ("text", "address", "is_listed"),
    [("10.0.0.0/8", "::ffff:10.1.2.3", True), ("10.0.0.0/8", "11.1.2.3", False), ("", "127.0.0.1", False),
     (" 1.2.3.4 , ::1,", "::1", True), ("fe80::/10", "fe80::1%eth0", True), ("10.0.0.0/8", "::1", False)],
)  # fmt: skip
def test_addresses_are_listed_by_themselves_and_by_networks(text: str, address: str, is_listed: bool) -> None:
    assert address_list("someSetting", text)(address) is is_listed
