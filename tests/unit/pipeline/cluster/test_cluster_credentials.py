"""`rocketmq-cluster` asks with the keys and TLS files of its options."""

from typing import Any

import pytest

from maxq.client.client_config import ClientConfig
from maxq.pipeline.cluster import cluster_tables
from maxq.pipeline.options.read_options import ConnectionOptions


class _Asked(Exception):
    pass


def test_the_tables_of_a_cluster_are_asked_for_with_keys_and_tls_files(monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[ClientConfig] = []

    def admin(config: ClientConfig, environment: Any) -> None:
        configs.append(config)
        raise _Asked

    monkeypatch.setattr(cluster_tables, "Admin", admin)
    options = ConnectionOptions("127.0.0.1:9", True, (("tls.client.trustCertPath", "/ca.pem"),), "ak", "sk", "token")
    with pytest.raises(_Asked):
        cluster_tables.topic_names(options)
    (config,) = configs
    assert (config.access_key, config.secret_key, config.security_token) == ("ak", "sk", "token")
    assert config.use_tls and config.tls_config is not None and config.tls_config.use_tls
    assert config.tls_config.tls_client_trust_cert_path == "/ca.pem"
