"""TLS beside plain connections on one port, its files, and TLS on a simulated network."""

import asyncio
import contextlib
import dataclasses
import gc
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.errors import ConfigError, RemotingConnectError, RemotingError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.remoting.server import RemotingServer
from maxq.remoting.tls.contexts import ClientTls, ServerTls, tls_settings
from maxq.runtime.files.system import SystemDisk
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.remoting.peers import ECHO, calling, connected, serving, until


def server_tls(**settings: Any) -> ServerTls:
    return ServerTls(dataclasses.replace(NettyServerConfig(), **settings), SystemDisk())


def client_tls(**settings: Any) -> ClientTls:
    """Trusts any server unless the settings say otherwise."""
    given = {"tls_client_auth_server": False, **settings}
    return ClientTls(dataclasses.replace(NettyClientConfig(), **given), SystemDisk())


def trusting_all() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def test_plain_and_tls_clients_share_a_port_in_permissive_mode() -> None:
    async with (
        serving(tls=server_tls()) as server,
        connected(server.port) as plain,
        connected(server.port, ssl=trusting_all()) as secret,
    ):
        for peer in (plain, secret):
            assert (await peer.ask(RemotingCommand(ECHO, body=b"x"))).body == b"x"


async def test_enforcing_closes_plain_connections_and_disabled_closes_tls() -> None:
    async with (
        serving(tls=server_tls(tls_server_mode="enforcing")) as server,
        connected(server.port) as plain,
        connected(server.port, ssl=trusting_all()) as secret,
    ):
        plain.send(RemotingCommand(ECHO))
        assert await plain.ended() == b""
        assert (await secret.ask(RemotingCommand(ECHO))).code == 0
    async with serving(tls=server_tls(tls_server_mode="disabled")) as server:
        async with connected(server.port) as plain:
            assert (await plain.ask(RemotingCommand(ECHO))).code == 0
        with pytest.raises((ConnectionError, ssl.SSLError)):
            async with connected(server.port, ssl=trusting_all()):
                pass


async def test_our_client_sends_large_and_many_frames_over_tls() -> None:
    async with serving(tls=server_tls()) as server, calling(client_tls()) as client:
        bodies = [os.urandom(size) for size in (0, 1, 16_384, 16_385, 300_000, 3_000_000)]
        bodies += [b"%d" % i for i in range(300)]
        answers = await asyncio.gather(
            *[client.invoke(f"127.0.0.1:{server.port}", RemotingCommand(ECHO, body=body), 10_000) for body in bodies]
        )
        assert [answer.body_bytes for answer in answers] == bodies
        assert len(server.connections) == 1


async def test_a_proxy_header_may_stand_before_tls() -> None:
    async with serving(tls=server_tls(tls_server_mode="enforcing"), proxy_protocol_trusted="127.0.0.1") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 10911\r\n")
        await writer.start_tls(trusting_all())
        writer.write(RemotingCommand(ECHO).encode())
        assert len(await reader.readexactly(4)) == 4
        assert next(iter(server.connections)).remote_address == "192.0.2.1:56324"
        writer.transport.abort()


async def test_the_end_of_a_tls_connection_is_seen_on_the_other_side() -> None:
    async with serving(tls=server_tls()) as server, calling(client_tls()) as client:
        await client.invoke(f"127.0.0.1:{server.port}", RemotingCommand(ECHO), 5000)
        client.close_connection(f"127.0.0.1:{server.port}")
        await until(lambda: not server.connections, "closed")
        async with connected(server.port, ssl=trusting_all()) as peer:
            await peer.ask(RemotingCommand(ECHO))
            await server.shutdown()
            assert await peer.ended() == b""


async def test_damaged_ciphertext_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tls=server_tls()) as server, connected(server.port) as peer:
        peer.send(b"\x16\x03\x01\0\x20" + b"x" * 32)
        await peer.ended()
        assert "TLS with 127.0.0.1" in caplog.text


async def test_an_attempt_that_is_given_up_leaves_no_error_that_nobody_has_seen() -> None:
    unseen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    for steps in range(10):
        async with serving(tls=server_tls()) as server, calling(client_tls()) as client:
            address = f"127.0.0.1:{server.port}"
            waiting = asyncio.create_task(client.invoke(address, RemotingCommand(ECHO), 5000))
            for _ in range(steps):
                await asyncio.sleep(0)
            client.give_up_attempt(address, "another one leads")
            with contextlib.suppress(RemotingError):
                await waiting
        gc.collect()
    assert unseen == []


async def test_a_server_without_tls_is_a_connect_error() -> None:
    async with serving() as server, calling(client_tls(), connect_timeout_millis=2000) as client:
        with pytest.raises(RemotingConnectError):
            await client.invoke(f"127.0.0.1:{server.port}", RemotingCommand(ECHO), 5000)


class Files:
    """Keys and certificates of one authority on disk."""

    def __init__(self, folder: Path, authority: trustme.CA | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.authority = authority or trustme.CA()
        self.key, self.cert, self.trust = folder / "key.pem", folder / "cert.pem", folder / "trust.pem"
        self.authority.cert_pem.write_to_path(self.trust)
        self.issue("broker")

    def issue(self, name: str) -> None:
        issued = self.authority.issue_cert(name, "127.0.0.1", common_name=name)
        issued.private_key_pem.write_to_path(self.key)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def server(self, **settings: Any) -> ServerTls:
        return server_tls(
            tls_test_mode_enable=False, tls_server_key_path=str(self.key), tls_server_cert_path=str(self.cert),
            tls_server_trust_cert_path=str(self.trust), **settings,
        )  # fmt: skip

    def client(self, **settings: Any) -> ClientTls:
        return client_tls(
            tls_client_trust_cert_path=str(self.trust), tls_client_key_path=str(self.key),
            tls_client_cert_path=str(self.cert), **settings,
        )  # fmt: skip


async def test_certificates_from_files_are_checked_on_both_sides(tmp_path: Path) -> None:
    ours, theirs = Files(tmp_path / "ours"), Files(tmp_path / "theirs")
    tls = ours.server(tls_server_need_client_auth="require", tls_server_auth_client=True)
    async with serving(tls=tls) as server:
        address = f"127.0.0.1:{server.port}"
        async with calling(ours.client(tls_client_auth_server=True)) as client:
            assert (await client.invoke(address, RemotingCommand(ECHO), 5000)).code == 0
        async with calling(theirs.client(tls_client_auth_server=True)) as client:
            with pytest.raises(RemotingConnectError, match="refused by TLS"):
                await client.invoke(address, RemotingCommand(ECHO), 5000)
        async with calling(client_tls(), connect_timeout_millis=2000) as client:  # shows no certificate
            with pytest.raises(Exception, match=r"takes only clients that have a certificate .*certPath"):
                await client.invoke(address, RemotingCommand(ECHO), 3000)


async def test_lines_of_the_tls_file_win_over_the_settings(tmp_path: Path) -> None:
    files = Files(tmp_path)
    conf = tmp_path / "tls.properties"
    conf.write_text(
        f"tls.test.mode.enable=false\ntls.server.keyPath={files.key}\ntls.server.certPath={files.cert}\n"
        f"tls.client.authServer=true\ntls.client.trustCertPath={files.trust}\nunknown=1\n"
    )
    server_side = server_tls(tls_config_file=str(conf), tls_server_key_path="/nowhere")
    async with serving(tls=server_side) as server, calling(client_tls(tls_config_file=str(conf))) as client:
        assert (await client.invoke(f"127.0.0.1:{server.port}", RemotingCommand(ECHO), 5000)).code == 0
    async with serving(tls=server_tls()) as server, calling(client_tls(tls_config_file=str(conf))) as client:
        with pytest.raises(RemotingConnectError, match="refused by TLS"):  # the test certificate is not trusted
            await client.invoke(f"127.0.0.1:{server.port}", RemotingCommand(ECHO), 5000)
    conf.write_text("tls.server.need.client.auth=maybe\n")
    with pytest.raises(ConfigError, match=r"tls\.properties.*tls\.server\.need\.client\.auth"):
        server_tls(tls_config_file=str(conf))


async def test_a_server_is_checked_unless_one_says_that_it_need_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files, others = Files(tmp_path / "ours"), Files(tmp_path / "others")

    async def outcome(server: RemotingServer, wanted: str | bool, host: str = "127.0.0.1") -> str:
        tls = ClientTls(tls_settings(wanted), SystemDisk())
        async with calling(tls) as client:
            try:
                await client.invoke(f"{host}:{server.port}", RemotingCommand(ECHO), 5000)
            except RemotingConnectError as error:
                return str(error)
        return ""

    async with serving(tls=server_tls()) as server:  # with the certificate that a server makes itself
        for wanted in (True, "verify", str(files.trust)):
            refused = await outcome(server, wanted)
            assert "self-signed certificate; name the authority that signed it" in refused and "--tls FILE" in refused
        assert "TLS does not check the server's certificate" not in caplog.text
        assert await outcome(server, "insecure") == ""
        assert "TLS does not check the server's certificate" in caplog.text
    async with serving(tls=files.server()) as server:
        assert "unable to get local issuer" in await outcome(server, True)
        assert "refused by TLS" in await outcome(server, str(others.trust))
        assert await outcome(server, str(files.trust)) == ""
        assert "not valid for 'localhost'" in await outcome(server, str(files.trust), "localhost")
        monkeypatch.setenv("SSL_CERT_FILE", str(files.trust))  # what the system trusts
        assert await outcome(server, True) == await outcome(server, "verify") == ""
    with pytest.raises(ConfigError, match=r"no-such\.pem"):
        ClientTls(tls_settings("no-such.pem"), SystemDisk())
    with pytest.raises(ConfigError, match=r"tls\.config\.file no-such\.properties is missing"):
        ClientTls(tls_settings("no-such.properties"), SystemDisk())


async def test_certificates_without_addresses_can_be_taken_by_an_authority_s_word(tmp_path: Path) -> None:
    files = Files(tmp_path)
    issued = files.authority.issue_cert("broker")
    issued.private_key_pem.write_to_path(files.key)
    files.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    async with serving(tls=files.server()) as server:
        address = f"127.0.0.1:{server.port}"
        async with calling(files.client(tls_client_auth_server=True)) as client:
            with pytest.raises(RemotingConnectError, match=r"not valid for '127\.0\.0\.1'"):
                await client.invoke(address, RemotingCommand(ECHO), 5000)
        async with calling(files.client(tls_client_auth_server=True, tls_client_check_name=False)) as client:
            assert (await client.invoke(address, RemotingCommand(ECHO), 5000)).code == 0


def common_name(peer: Any) -> Any:
    certificate = peer.writer.get_extra_info("ssl_object").getpeercert()
    return dict(item[0] for item in certificate["subject"])["commonName"]


async def test_new_files_are_used_when_key_and_certificate_go_together(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.issue("old")
    tls = files.server()
    checking = ssl.create_default_context(cafile=str(files.trust))
    checking.check_hostname = False
    async with serving(tls=tls) as server:
        async with connected(server.port, ssl=checking) as peer:
            assert common_name(peer) == "old"
        old_key, old_time = files.key.read_bytes(), files.key.stat().st_mtime
        files.issue("new")
        new_key = files.key.read_bytes()
        files.key.write_bytes(old_key)
        os.utime(files.key, (old_time, old_time))
        later(files.cert)
        server.looked()  # the certificate alone is a change half done
        async with connected(server.port, ssl=checking) as peer:
            assert common_name(peer) == "old"
        files.key.write_bytes(new_key)
        later(files.key)
        server.looked()
        async with connected(server.port, ssl=checking) as peer:
            assert common_name(peer) == "new"
        files.issue("newest")
        whole = files.cert.read_bytes()
        files.cert.write_bytes(whole[: len(whole) // 2])
        later(files.key)
        later(files.cert)
        server.looked()  # seen while it is written: logged, the old ones stay,
        async with connected(server.port, ssl=checking) as peer:
            assert common_name(peer) == "new"
        files.cert.write_bytes(whole)  # and the end of the writing is a change again
        server.looked()
        async with connected(server.port, ssl=checking) as peer:
            assert common_name(peer) == "newest"


def test_a_certificate_that_is_renewed_for_the_same_key_counts(tmp_path: Path) -> None:
    files = Files(tmp_path)
    tls = files.server()
    before = tls.context()
    assert tls.context() is before
    files.cert.write_bytes(files.cert.read_bytes() + files.authority.cert_pem.bytes())
    assert tls.context() is not before


async def test_connections_go_on_when_the_files_change_and_the_next_one_has_the_new_certificate(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.issue("old")
    checking = ssl.create_default_context(cafile=str(files.trust))
    checking.check_hostname = False
    async with serving(tls=files.server()) as server, connected(server.port, ssl=checking) as before:
        files.issue("new")
        later(files.key)
        later(files.cert)
        async with connected(server.port, ssl=checking) as after:
            assert (common_name(before), common_name(after)) == ("old", "new")
            for peer in (before, after):
                assert (await peer.ask(RemotingCommand(ECHO, body=b"x"))).body == b"x"


def later(path: Path) -> None:
    """Give a file a modification time of its own."""
    stamp = path.stat().st_mtime + 10
    os.utime(path, (stamp, stamp))


@pytest.mark.parametrize("missing", ["key", "cert", "trust"])
def test_files_that_cannot_be_used_are_named_at_start(tmp_path: Path, missing: str) -> None:
    files = Files(tmp_path)
    path = getattr(files, missing)
    path.write_text("rubbish")
    with pytest.raises(ConfigError, match=path.name):
        files.server(tls_server_need_client_auth="require", tls_server_auth_client=True)
    path.unlink()
    with pytest.raises(ConfigError, match=path.name):
        files.server(tls_server_need_client_auth="require", tls_server_auth_client=True)


@pytest.mark.parametrize("seed", range(3))
def test_tls_works_on_in_memory_transports_that_cut_anywhere(seed: int) -> None:
    async def main(world: SimWorld) -> None:
        server = RemotingServer(NettyServerConfig(), clock=world.clock, tls=server_tls(tls_server_mode="enforcing"))
        server.register(ECHO, lambda _, command: command.reply(0, None, None, command.body))
        with world.network.on_host("10.0.0.1"):
            await server.start("10.0.0.1", 10911)
        client = RemotingClient(NettyClientConfig(), clock=world.clock, rng=world.rng, tls=client_tls())
        bodies = [world.rng.bytes(world.rng.below(40_000)) for _ in range(20)]
        with world.network.on_host("10.0.0.2"):
            answers = await asyncio.gather(
                *[client.invoke("10.0.0.1:10911", RemotingCommand(ECHO, body=body), 60_000) for body in bodies]
            )
        assert [answer.body_bytes for answer in answers] == bodies
        await client.close()
        await server.shutdown()

    run_simulation(main, seed=seed)
