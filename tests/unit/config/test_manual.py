from pathlib import Path

from maxq.config import BrokerConfig, MessageStoreConfig, NamesrvConfig, NettyClientConfig, NettyServerConfig
from maxq.config.manual import render
from maxq.config.setting import settings_of

PAGE = Path(__file__).parents[3] / "docs/reference/settings.md"


def test_the_page_of_settings_is_current() -> None:
    assert PAGE.read_text() == render(), "run: python -m maxq.config.manual > docs/reference/settings.md"


def test_every_setting_is_on_the_page() -> None:
    page = render()
    classes = (BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig, NamesrvConfig)
    assert [row.name for config in classes for row in settings_of(config) if f"`{row.name}`" not in page] == []
