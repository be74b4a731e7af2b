import pytest

from flintmq.format.wire.codes import PROTOCOL_VERSION, LanguageCode, RequestCode, ResponseCode


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (10, "SEND_MESSAGE"),
        (11, "PULL_MESSAGE"),
        (34, "HEART_BEAT"),
        (53, "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG"),
        (105, "GET_ROUTEINFO_BY_TOPIC"),
        (214, "WHO_CONSUME_THE_MESSAGE"),
        (313, "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST"),
        (320, "SEND_BATCH_MESSAGE"),
        (329, "DELETE_EXPIRED_COMMITLOG"),
        (361, "LITE_PULL_MESSAGE"),
    ],
)
def test_request_codes_are_those_of_the_table(code: int, name: str) -> None:
    assert RequestCode(code).name == name


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "SUCCESS"),
        (17, "TOPIC_NOT_EXIST"),
        (22, "QUERY_NOT_FOUND"),
        (28, "FILTER_DATA_NOT_LATEST"),
        (203, "TRANSACTION_STATE_GROUP_WRONG"),
        (206, "CONSUMER_NOT_ONLINE"),
        (211, "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED"),
        (215, "FLOW_CONTROL"),
    ],
)
def test_response_codes_are_those_of_the_table(code: int, name: str) -> None:
    assert ResponseCode(code).name == name


def test_languages_count_from_java() -> None:
    assert [member.value for member in LanguageCode] == list(range(14))
    assert (LanguageCode.JAVA, LanguageCode.GO, LanguageCode.RUST) == (0, 9, 12)


def test_the_version_is_that_of_release_4_9_8() -> None:
    major, minor, patch = 4, 9, 8
    assert 213 + 200 * (major - 4) + 20 * minor + 2 * patch == PROTOCOL_VERSION
