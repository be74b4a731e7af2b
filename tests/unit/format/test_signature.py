import base64
import hashlib
import hmac
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from flintmq.format.wire.signature import signature_of, signed_fields

FIELDS = st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=8)


def test_the_vector_of_the_specification() -> None:
    fields = {"topic": "TopicTest", "queueId": "0", "AccessKey": "RocketMQ"}
    assert signature_of(fields, b"", b"12345678") == b"81TVNXFMLTfMm08aNFX+r9iZBrY="


def test_names_are_sorted_with_capitals_first_and_not_signed() -> None:
    names = ["AccessKey", "OnsChannel", "SecurityToken", "a", "b", "consumerGroup", "i", "queueId"]
    fields = {name: str(number) for number, name in enumerate(names)}
    digest = hmac.new(b"secret", b"01234567body", hashlib.sha1).digest()
    shuffled = dict(reversed(fields.items()))
    assert signature_of(shuffled, b"body", b"secret") == base64.b64encode(digest)


def test_a_large_body_is_signed_where_it_is() -> None:
    """A gate signs what strangers send, 16 MiB at most, and everybody waits for it."""
    body = bytes(range(256)) * (16 << 10)
    digest = hmac.new(b"secret", b"0" + body, hashlib.sha1).digest()
    tracemalloc.start()
    try:
        made = signature_of({"a": "0"}, body, b"secret")
        _, most_size = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made == base64.b64encode(digest)
    assert most_size < len(body) // 8


@given(fields=FIELDS, body=st.binary(max_size=20), other=st.binary(max_size=20))
def test_a_signature_holds_for_what_was_signed(
    fields: dict[str, str], body: bytes, other: bytes
) -> None:
    signed = signed_fields(fields, body, access_key="someKey", secret_key="secret")
    given_one = signed["Signature"].encode()
    assert given_one == signature_of(signed, body, b"secret")
    assert (given_one == signature_of(signed, other, b"secret")) == (other == body)
    assert given_one != signature_of(signed, body, b"Secret")
    # Signing again changes nothing, whoever signed before.
    assert signed_fields(signed, body, access_key="someKey", secret_key="secret") == signed
