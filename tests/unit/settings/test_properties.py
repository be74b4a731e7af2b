"""Property files as they are written, with and without what has to be escaped."""

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.settings import read_properties, write_properties

plain = st.sampled_from(
    ["brokerName", "/data/store", "1s 5s 10s", "0.75", "DELETE", "a b", "-1", "h:1;h:2"]
)
odd = st.sampled_from(
    ["", " led", "a=b", "a:b", "#no", "!no", "back\\slash", "\u20ac", "two\nlines"]
)
texts = st.one_of(plain, plain, odd, st.text(max_size=10))


@given(values=st.dictionaries(texts, texts, max_size=6))
def test_what_is_written_is_what_the_library_writes_and_reads(values: dict[str, str]) -> None:
    written = write_properties(values)
    assert written == javaproperties.dumps(values, timestamp=False).encode("latin-1")
    assert read_properties(written) == values


lines = st.lists(st.text("ab#!=: \t\f\r\n\x0b\x85\u2028é\\", max_size=12), max_size=6).map(
    "\n".join
)


@given(text=lines)
def test_what_is_read_is_what_the_library_reads(text: str) -> None:
    assert read_properties(text) == javaproperties.loads(text)


@given(text=lines.map(lambda text: text.replace("\\", "").replace("é", "\\:")))
def test_a_file_with_no_escapes_but_colons_is_read_as_the_library_reads_it(text: str) -> None:
    assert read_properties(text) == javaproperties.loads(text)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("key=value", "value"),
        ("  key : a = b ", "a = b "),
        ("key value", "value"),
        ("key", ""),
        ("key==", "="),
        ("key=h\\:1;h:2", "h:1;h:2"),
        ("#key=value\n!key\nkey=value", "value"),
        ("key=first\rkey=second", "second"),
    ],
)
def test_a_line_is_a_key_and_a_value(line: str, value: str) -> None:
    assert read_properties(line) == {"key": value}
