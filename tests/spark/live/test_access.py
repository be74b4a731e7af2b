"""Reading and writing live topics of a broker with access control, by the options that sign."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.spark.live.errors import RefusedReadError
from flintmq.testing import EmbeddedCluster
from tests.kits.broker.access_kit import write_accounts
from tests.kits.spark.live_kit import StreamRun, bodies, read, texts
from tests.kits.spark.sink_kit import numbered, send_rows

SPARK: Final[dict[str, Any]] = {"accessKey": "sparkKey1", "secretKey": "spark-secret"}
ACCOUNTS: Final = """
accounts:
  - accessKey: sparkKey1
    secretKey: spark-secret
    topicPerms: [orders=PUB|SUB]
    groupPerms: [FLINTMQ_SPARK=SUB]
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    acl_file = write_accounts(tmp_path, ACCOUNTS)
    with EmbeddedCluster(aclEnable="true", aclFile=acl_file) as running:
        yield running


def test_rows_are_written_and_read_by_an_account(guarded: EmbeddedCluster) -> None:
    send_rows(guarded.namesrv, numbered(range(20)), **SPARK)
    rows = read(guarded.namesrv, subscribe="orders", **SPARK)
    assert bodies(rows) == texts(range(20))
    options = {"subscribe": "orders", "startingOffsets": "earliest", **SPARK}
    with StreamRun(guarded.namesrv, **options) as stream:
        assert bodies(stream.everything()) == texts(range(20))


def test_what_is_denied_says_why_and_tells_no_secret(guarded: EmbeddedCluster) -> None:
    send_rows(guarded.namesrv, numbered(range(2)), **SPARK)
    wrong = SPARK | {"secretKey": "another-secret"}
    for options, words in ((wrong, "Check signature failed"), ({}, "No accessKey is configured")):
        with pytest.raises(RefusedReadError, match=words) as caught:
            read(guarded.namesrv, subscribe="orders", **options)
        assert "-secret" not in str(caught.value)
        with pytest.raises(Exception, match=words):
            send_rows(guarded.namesrv, numbered(range(2)), batch=1, **options)
