"""The table of settings in the documents is what the code does."""

import pytest

from flintmq.broker import read_settings
from flintmq.namesrv import NamesrvConfig
from flintmq.remoting.tls_setup import server_tls
from flintmq.settings import ConfigError
from tools.settings_table import PAGE, REFUSED, rows, written


def test_the_document_has_the_table_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == written(page), "python -m tools.settings_table writes it anew"


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_what_is_said_to_be_refused_is_refused(key: str) -> None:
    def start() -> None:
        broker, _ = read_settings({key: REFUSED[key]})
        server_tls(broker)

    with pytest.raises(ConfigError, match=key):
        start()
    if key.startswith("tls."):
        with pytest.raises(ConfigError, match=key):
            server_tls(NamesrvConfig.from_properties({key: REFUSED[key]}))


def test_settings_of_which_we_know_are_judged_rightly() -> None:
    states = {row.key: row.state for row in rows()}
    for key in ("flushDiskType", "transactionTimeOut", "namesrvAddr", "serverSocketBacklog"):
        assert states[key] == "honoured"
    for key in ("useEpollNativeSelector", "sendMessageThreadPoolNums", "debugLockEnable"):
        assert states[key] == "without meaning here"
    assert states["maxHeldPulls"] == "ours"
