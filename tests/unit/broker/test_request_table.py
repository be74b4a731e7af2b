"""The table of requests in the documents is what servers and clients answer."""

from pathlib import Path

from flintmq.broker import read_settings, run_broker
from flintmq.broker.processors.operator_table import operator_processors
from flintmq.broker.processors.table import OPERATOR_CODES
from flintmq.format.wire.codes import RequestCode
from tools.request_table import PAGE, SMALL, served, written


async def test_the_document_has_the_table_of_the_code() -> None:
    by = await served()
    page = PAGE.read_text()
    assert page == written(page, by), "python -m tools.request_table writes it anew"
    # What each of them has to answer at the least, or the table would be true and useless.
    assert {RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE} <= by.broker
    assert RequestCode.GET_ROUTEINFO_BY_TOPIC in by.namesrv
    assert RequestCode.CHECK_TRANSACTION_STATE in by.client


async def test_all_that_operators_may_ask_is_there_when_it_is_loaded(tmp_path: Path) -> None:
    settings = read_settings(SMALL | {"storePathRootDir": str(tmp_path)})
    async with run_broker(*settings) as broker:
        assert operator_processors(broker.context).keys() == set(OPERATOR_CODES)
