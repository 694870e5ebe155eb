"""The how-to pages lead where they say, step by step."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from maxq.api import Message, Producer
from maxq.errors import MaxQError
from maxq.testing.server_process import StandaloneProcess
from tests.integration.cli.harness import maxq

HOWTO = Path(__file__).parents[3] / "docs/howto"


@pytest.mark.skipif(not shutil.which("openssl"), reason="the page uses OpenSSL's command, which is not installed here")
def test_the_page_of_tls_ends_with_clients_that_check_the_server_and_prove_who_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (HOWTO / "tls.md").read_text()
    steps = re.search(r"```sh\n(.*?)```", page, re.DOTALL)
    started = re.search(r"^ {4}maxq standalone (.*)$", page, re.MULTILINE)
    asked = re.search(r"^ {4}maxq (admin clusterList) .*(--tls ca\.pem)$", page, re.MULTILINE)
    assert steps and started and asked
    subprocess.run(["sh", "-ec", steps[1]], cwd=tmp_path, check=True, capture_output=True)

    settings = dict(pair.split("=", 1) for pair in re.findall(r"--set (\S+)", started[1]))
    inside = {"server.key", "server.pem", "ca.pem"}
    settings = {name: str(tmp_path / value) if value in inside else value for name, value in settings.items()}
    with StandaloneProcess(settings) as server:
        done = maxq("admin", "clusterList", "--tls", "ca.pem", namesrv=server.namesrv_address, cwd=tmp_path)
        assert done.code == 0 and "broker-a" in done.out, done
        with Producer("howto", server.namesrv_address, use_tls=str(tmp_path / "ca.pem")) as producer:
            producer.send(Message("Howto", b"over TLS"))
        in_the_open = Producer("howto", server.namesrv_address, send_msg_timeout=2000)
        with pytest.raises(MaxQError, match="takes only TLS closes other connections"), in_the_open as producer:
            producer.send(Message("Howto", b"in the open"))
        untrusting = Producer("howto", server.namesrv_address, use_tls=True, send_msg_timeout=500)
        with pytest.raises(MaxQError, match="refused by TLS: unable to get local issuer"), untrusting as producer:
            producer.send(Message("Howto", b"to a stranger"))

    proof = page.partition("## 4.")[2]
    certified = re.search(r"```sh\n(.*?)```", proof, re.DOTALL)
    more = re.search(r"```properties\n(.*?)```", proof, re.DOTALL)
    program = re.search(r"```python\n(.*?)```", proof, re.DOTALL)
    assert certified and more and program
    subprocess.run(["sh", "-ec", certified[1]], cwd=tmp_path, check=True, capture_output=True)
    lines = [line.split("=", 1) for line in more[1].replace("/etc/maxq", str(tmp_path)).splitlines() if "=" in line]
    with StandaloneProcess(settings | dict(lines)) as server:
        done = maxq("admin", "clusterList", "--tls", "ca.pem", namesrv=server.namesrv_address, cwd=tmp_path)
        assert done.code == 1 and "takes only clients that have a certificate" in done.err, done
        monkeypatch.chdir(tmp_path)
        exec(program[1].replace("127.0.0.1:9876", server.namesrv_address), {})


def test_the_page_of_access_control_ends_with_a_user_who_may_do_what_its_policies_say(tmp_path: Path) -> None:
    page = (HOWTO / "access-control.md").read_text().replace("…", "secret").replace(" -i 10.0.0.0/8", "")
    switched_on = re.search(r"^ +```properties\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE)
    made = re.search(r"## Make users and policies\n(.*?)\n\* Resources", page, re.DOTALL)
    assert switched_on and made
    settings = dict(line.strip().split("=", 1) for line in switched_on[1].splitlines())
    outcomes = []
    with StandaloneProcess(settings) as server:  # name server and broker have one table of users
        for text, command in re.findall(r"^ {4}(?:echo (\w+) \| )?maxq (.*)$", made[1], re.MULTILINE):
            if "NAMESRV" in command:
                continue
            user = "root" if command.startswith("admin") else "alice"
            words = shlex.split(command.replace("BROKER:10911", server.broker_address))
            words += ["--access-key", user, "--secret-key", "secret"]
            done = maxq(*words, text=f"{text}\n", namesrv=server.namesrv_address, cwd=tmp_path)
            outcomes.append((" ".join(words[:2]), done.code, "(code 16" in done.err))
        for user, words in (
            ("seller", ["produce", "orders-1"]),
            ("seller", ["consume", "orders-1", "--group", "billing", "--max", "1"]),
            ("biller", ["consume", "orders-1", "--group", "billing", "--max", "1"]),
            ("biller", ["produce", "orders-1"]),
        ):
            words += ["--access-key", user, "--secret-key", "secret"]
            done = maxq(*words, text="hello\n", namesrv=server.namesrv_address, cwd=tmp_path)
            outcomes.append((f"{user} {words[0]}", done.code, f"{user} has no permission" in done.err))
    assert outcomes == [
        ("admin createUser", 0, False),
        ("admin createAcl", 0, False),
        ("admin updateTopic", 0, False),
        ("produce orders-1", 0, False),
        ("consume orders-1", 0, False),
        ("produce secrets", 1, True),
        *[("admin createUser", 0, False), ("admin createAcl", 0, False)] * 2,
        ("seller produce", 0, False),
        ("seller consume", 1, True),
        ("biller consume", 0, False),
        ("biller produce", 1, True),
    ]


def test_the_page_of_filters_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    page = (HOWTO / "filter.md").read_text()
    found = re.search(r"```python\n(.*?)```\n\nIt prints:\n\n((?: {4}[^\n]*\n)+)", page, re.DOTALL)
    assert found is not None
    with StandaloneProcess({"enablePropertyFilter": "true"}) as server:
        exec(compile(found[1].replace("127.0.0.1:9876", server.namesrv_address), "filter.md", "exec"), {})
        for more in ([], ["--pop"]):
            words = ["consume", "Paints", "--group", "lines" + "".join(more), "--max", "2", *more]
            done = maxq(*words, "--sql", "price > 100 AND color = 'red'", namesrv=server.namesrv_address)
            assert sorted(done.out.splitlines()) == ["red for 150", "red for 500"], done
        done = maxq(*words, "--sql", "price >", namesrv=server.namesrv_address)
        assert done.code == 2 and "price >" in done.err and done.err.count("\n") == 1, done
        done = maxq(*words, "--sql", "TRUE", "--tag", "a", namesrv=server.namesrv_address)
        assert done.code == 2 and "exclude each other" in done.err, done
    assert capsys.readouterr().out.split() == found[2].split()
