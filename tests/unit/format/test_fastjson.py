from typing import Any

import pytest

from flintmq.format.errors import StateTextError
from flintmq.format.fastjson import DEPTH_MAX, dumps, loads

TOPICS = """{
\t"dataVersion":{
\t\t"counter":3,
\t\t"timestamp":1700000000000
\t},
\t"topicConfigTable":{
\t\t"TopicTest":{
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"topicName":"TopicTest"
\t\t}
\t}
}"""
CONSUMER_OFFSETS = """{
\t"offsetTable":{
\t\t"%RETRY%groupA@groupA":{0:0
\t\t},
\t\t"TopicTest@groupA":{0:12,1:9,2:11,3:10
\t\t}
\t}
}"""
DELAY_OFFSETS = """{
\t"offsetTable":{3:202,4:2,18:0
\t}
}"""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            TOPICS,
            {
                "dataVersion": {"counter": 3, "timestamp": 1700000000000},
                "topicConfigTable": {
                    "TopicTest": {"order": False, "perm": 6, "topicName": "TopicTest"}
                },
            },
        ),
        (
            CONSUMER_OFFSETS,
            {
                "offsetTable": {
                    "%RETRY%groupA@groupA": {0: 0},
                    "TopicTest@groupA": {0: 12, 1: 9, 2: 11, 3: 10},
                }
            },
        ),
        (DELAY_OFFSETS, {"offsetTable": {3: 202, 4: 2, 18: 0}}),
        ('{\n\t"filterDataByTopic":{}\n}', {"filterDataByTopic": {}}),
        ('{\n\t"bitPos":[8,56,9]\n}', {"bitPos": [8, 56, 9]}),
    ],
)
def test_state_is_written_and_read_in_the_style_of_the_java_broker(text: str, value: Any) -> None:
    assert dumps(value) == text
    assert loads(text) == value
    assert loads(text.encode()) == value


def test_members_are_sorted_integers_by_number_and_none_is_left_out() -> None:
    assert dumps({"b": 1, "a": None, "B": 2}) == '{\n\t"B":2,\n\t"b":1\n}'
    assert dumps({10: 1, 9: 2, -1: 3}) == "{-1:3,9:2,10:1\n}"
    assert dumps({"a": None}) == "{}"
    assert dumps({"b": 1, "a": 2}, sort_members=False) == '{\n\t"b":1,\n\t"a":2\n}'


def test_lists_of_maps_stand_on_lines_of_their_own() -> None:
    assert dumps([{"a": 1}, {}]) == '[\n\t{\n\t\t"a":1\n\t},\n\t{}\n]'
    assert dumps([]) == "[]"
    assert dumps([None, True, 1.5, "x"]) == '[null,true,1.5,"x"]'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:1}", {0: 1}),
        ("{ 0 : 1 , -7 : 2 }", {0: 1, -7: 2}),
        ('{"0":1}', {"0": 1}),
        ('{"a{0:1,2:3}":"{4:5,6:7}"}', {"a{0:1,2:3}": "{4:5,6:7}"}),
        ('{"a\\",1:":2}', {'a",1:': 2}),
        ('["\\u8ba2",0.5,-1e2,true,false,null]', ["\u8ba2", 0.5, -100.0, True, False, None]),
        ('{"a":1,"a":2,0:3,0:4}', {"a": 2, 0: 4}),
        (" [ ] ", []),
        ('{0:{1:[{2:"x"}]}}', {0: {1: [{2: "x"}]}}),
    ],
)
def test_bare_integer_keys_are_read_and_text_in_strings_is_left_alone(
    text: str, value: Any
) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", 0),
        ("  ", 2),
        ("{", 1),
        ("{}x", 2),
        ("{} {}", 3),
        ('{"a":1', 6),
        ('{"a":1,}', 7),
        ('{"a":}', 5),
        ('{"a"1}', 4),
        ("{a:1}", 1),
        ("{1.5:1}", 2),
        ("[1 2]", 3),
        ("[1,", 3),
        ("[1}", 2),
        ('{"a', 1),
        ('{"a\n":1}', 3),
        ("NaN", 0),
        ("Infinity", 0),
        ("-", 0),
        ("01", 1),
        ("'a'", 0),
        ("tru", 0),
        ("1e9999", 6),
        ("1" * 70, 64),
    ],
)
def test_what_is_not_this_dialect_is_refused_with_its_place(text: str, offset: int) -> None:
    with pytest.raises(StateTextError) as caught:
        loads(text)
    assert caught.value.offset == offset


def test_the_place_in_bytes_is_counted_in_bytes() -> None:
    with pytest.raises(StateTextError) as caught:
        loads('{"\u8ba2\u5355":x}'.encode())
    assert caught.value.offset == 10
    with pytest.raises(StateTextError, match="UTF-8") as caught:
        loads(b'{"\xff":1}')
    assert caught.value.offset == 2


@pytest.mark.parametrize("opening", ["[", '{"a":', "{0:"])
def test_nesting_has_a_limit(opening: str) -> None:
    with pytest.raises(StateTextError, match="deeper"):
        loads(opening * 100_000)
    closing = "]" if opening == "[" else "}"
    assert loads(opening * (DEPTH_MAX - 1) + "[]" + closing * (DEPTH_MAX - 1))


def test_values_beside_each_other_do_not_count_as_nested() -> None:
    value: list[Any] = [{"a": []}] * (2 * DEPTH_MAX)
    assert loads(dumps(value)) == value


def test_what_nests_too_deep_is_not_written() -> None:
    value: list[Any] = []
    for _ in range(DEPTH_MAX + 1):
        value = [value]
    with pytest.raises(StateTextError, match="deeper"):
        dumps(value)


def test_text_outside_ascii_is_written_as_it_is_and_a_lone_surrogate_escaped() -> None:
    assert dumps("\u8ba2\u5355") == '"\u8ba2\u5355"'
    assert dumps("a\ud800") == '"a\\ud800"'
    assert loads(dumps("a\ud800").encode()) == "a\ud800"


@pytest.mark.parametrize(
    "value", [{None: 1}, {1.5: 1}, {True: 1}, {b"a": 1}, float("nan"), float("inf"), {1, 2}, b"x"]
)
def test_what_has_no_text_is_refused(value: Any) -> None:
    with pytest.raises(StateTextError):
        dumps(value)
