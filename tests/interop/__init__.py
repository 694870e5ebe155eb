"""Tests beside Apache RocketMQ's own servers, clients and tools (`make interop`; they need a JDK and Maven).

`processes` starts them; `conftest.py` joins them to ours in every mixture. `test_short_form.py` is what `make test`
runs of it where no Java is needed.
"""
