import copy
import pickle

import pytest

from flintmq.errors import FlintError
from flintmq.format.errors import (
    CorruptRecordError,
    EndOfRecords,
    FormatError,
    RecordTooLargeError,
)


def test_the_text_says_where_and_why() -> None:
    assert str(FormatError("too short", 12, "commitlog/0")) == "commitlog/0: at 12: too short"
    assert str(FormatError("too short", 12)) == "at 12: too short"
    assert str(FormatError("too short")) == "too short"


def test_a_located_error_is_of_the_same_kind_and_moved() -> None:
    error = EndOfRecords("nothing", 8)
    moved = error.located("log", 4096)
    assert type(moved) is EndOfRecords
    assert (moved.reason, moved.offset, moved.source) == ("nothing", 4104, "log")
    assert str(moved) == "log: at 4104: nothing"
    assert (error.offset, error.source) == (8, "")


def test_an_error_without_an_offset_gets_only_a_source() -> None:
    assert FormatError("odd").located("topics.json", 100).offset is None


def test_a_size_error_tells_field_value_and_limit() -> None:
    error = RecordTooLargeError("topic length", 128, 127).located("put")
    assert (error.field, error.value, error.limit) == ("topic length", 128, 127)
    assert str(error) == "put: topic length is 128, the limit 127"


@pytest.mark.parametrize(
    "error",
    [
        CorruptRecordError("bad", 3).located("log", 7),
        RecordTooLargeError("body", 2, 1).located("put"),
    ],
)
def test_errors_survive_copying_and_pickling(error: FormatError) -> None:
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_format_errors_are_flint_errors_that_no_retry_helps() -> None:
    assert issubclass(FormatError, FlintError)
    assert not FormatError.retriable
