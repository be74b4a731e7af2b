"""Bodies that the Java client compresses, read by ours; the other way is with our producer."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from flintmq import ConsumeFrom, LitePullConsumer
from flintmq.format.compression import CompressionType
from flintmq.format.sys_flag import COMPRESSED, compression_type
from tests.kits.leftovers import LEAVES_NOTHING
from tests.kits.processes.java_clients import HEAP_FLAGS, find_clients
from tests.kits.processes.serving import Serving

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures(LEAVES_NOTHING)]

REPEATS: Final = 5000
JAVA_TIMEOUT_S: Final = 60
DEADLINE_POLLS: Final = 30


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("compression") / "data") as running:
        yield running


@pytest.mark.parametrize("kind", list(CompressionType))
def test_what_the_java_client_compressed_is_read(
    kind: CompressionType, servers: Serving, tmp_path: Path
) -> None:
    topic, text = f"compressed-{kind.name}", f"{kind.name} "
    flags = (
        f"-Duser.home={tmp_path}",
        f"-Drocketmq.message.compressType={kind.name}",
        *HEAP_FLAGS,
    )
    command = find_clients("4.9.8").command(
        "Compressed", servers.namesrv, topic, text, str(REPEATS), flags=flags
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=True
    )
    assert "SEND_OK" in done.stdout
    with LitePullConsumer(
        namesrv=servers.namesrv,
        group="compressed-readers",
        subscriptions={topic: "*"},
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ) as consumer:
        for _ in range(DEADLINE_POLLS):
            found = consumer.poll(timeout_ms=1000)
            if found:
                break
    (message,) = found
    assert message.sys_flag & COMPRESSED
    assert compression_type(message.sys_flag) is kind
    assert message.body == text.encode() * REPEATS
    assert message.store_size < len(message.body)
