"""Property files as they are written, with and without what has to be escaped."""

import javaproperties
from hypothesis import given
from hypothesis import strategies as st

from flintmq.settings import read_properties, write_properties

plain = st.sampled_from(["brokerName", "/data/store", "1s 5s 10s", "0.75", "DELETE", "a b", "-1"])
odd = st.sampled_from(
    ["", " led", "a=b", "a:b", "#no", "!no", "back\\slash", "\u20ac", "two\nlines"]
)
texts = st.one_of(plain, plain, odd, st.text(max_size=10))


@given(values=st.dictionaries(texts, texts, max_size=6))
def test_what_is_written_is_what_the_library_writes_and_reads(values: dict[str, str]) -> None:
    written = write_properties(values)
    assert written == javaproperties.dumps(values, timestamp=False).encode("latin-1")
    assert read_properties(written) == values
