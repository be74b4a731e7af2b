"""Which properties a message may have."""

import pytest

from flintmq.client.errors import UsageError
from flintmq.client.messaging.messages import Message
from flintmq.format.properties import decode_properties, encode_properties


def test_a_value_of_blanks_is_one_and_comes_back() -> None:
    message = Message(topic="t", body=b"x", properties={"note": "  "})
    encoded = encode_properties(message.wire_properties())
    assert decode_properties(encoded)["note"] == "  "


@pytest.mark.parametrize("properties", [{"note": ""}, {" ": "x"}, {"": "x"}])
def test_a_property_needs_a_name_and_a_value(properties: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="needs a name and a value"):
        Message(topic="t", body=b"x", properties=properties)
