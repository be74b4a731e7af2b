"""What `header` makes of a class: a frozen dataclass whose methods are those of `Header`."""

import copy
import dataclasses
import pickle

import pytest

from flintmq.format.wire.headers.codec import Header, Int32, header


@header
class Base(Header):
    topic: str
    count: Int32 = 3


@header
class Extended(Base, wire_names={"extra": "x"}):
    extra: str | None = None


@header
class Empty(Header):
    pass


def test_fields_are_given_by_name_and_defaults_fill_the_rest() -> None:
    made = Base(topic="t")
    assert (made.topic, made.count) == ("t", 3)
    assert Base(count=5, topic="u").count == 5
    assert Empty() == Empty()


def test_a_class_that_extends_another_takes_the_fields_of_both() -> None:
    Base(topic="t")  # Its constructor exists before that of the other is needed.
    made = Extended(topic="t", count=1, extra="e")
    assert (made.topic, made.count, made.extra) == ("t", 1, "e")
    assert made.encode() == {"topic": "t", "count": "1", "x": "e"}


def test_what_is_no_field_or_is_missing_is_refused_with_the_class() -> None:
    with pytest.raises(TypeError, match=r"Base.__init__\(\) .*'topik'"):
        Base(topik="t")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Base.__init__\(\) missing .*'topic'"):
        Base()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Base("t")  # type: ignore[call-arg]


def test_the_fields_that_dataclasses_ask_for_are_made_once_for_a_class() -> None:
    """They are compiled: a broker that did so for each header would stand still meanwhile."""
    fields = Base.__dataclass_fields__
    changed = dataclasses.replace(Base(topic="t"), count=5)
    assert changed == Base(topic="t", count=5)
    assert Base.__dataclass_fields__ is fields
    assert [field.name for field in dataclasses.fields(Extended)] == ["topic", "count", "extra"]
    assert not dataclasses.fields(Empty)


def test_a_header_does_not_change() -> None:
    made = Base(topic="t")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.topic = "u"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.topic
    with pytest.raises((AttributeError, TypeError)):
        made.other = 1


def test_headers_are_equal_by_class_and_fields() -> None:
    assert Base(topic="t") == Base(topic="t", count=3)
    assert Base(topic="t") != Base(topic="t", count=4)
    assert Base(topic="t") != Extended(topic="t")
    assert Base(topic="t") != ("t", 3)
    assert len({Base(topic="t"), Base(topic="t"), Base(topic="u")}) == 2


def test_a_header_shows_its_fields() -> None:
    assert repr(Extended(topic="t")) == "Extended(topic='t', count=3, extra=None)"


def test_a_header_can_be_copied_replaced_and_taken_apart() -> None:
    made = Extended(topic="t", extra="e")
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == made
    assert dataclasses.replace(made, topic="u") == Extended(topic="u", extra="e")
    assert dataclasses.asdict(made) == {"topic": "t", "count": 3, "extra": "e"}
    assert "__dict__" not in dir(made)
