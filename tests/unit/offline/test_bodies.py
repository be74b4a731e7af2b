from typing import Any

import pytest

from flintmq.offline.readable_bodies import BodyForm, body_fields


@pytest.mark.parametrize(
    ("body", "form", "shown", "said"),
    [
        (b'{"a": [1, null]}', BodyForm.AUTO, {"a": [1, None]}, "json"),
        (b"[1]", BodyForm.AUTO, [1], "json"),
        (b"17", BodyForm.AUTO, "17", "text"),
        (b"17", BodyForm.JSON, 17, "json"),
        (b"plain", BodyForm.JSON, "plain", "text"),
        ("über".encode(), BodyForm.AUTO, "über", "text"),
        (b"\xff\0", BodyForm.AUTO, "/wA=", "base64"),
        (b"\xff", BodyForm.TEXT, "\ufffd", "text"),
        (b"\xff\0", BodyForm.HEX, "ff00", "hex"),
        (b"", BodyForm.AUTO, "", "text"),
        (b"[" * 100_000, BodyForm.AUTO, "[" * 10, "text"),
    ],
)
def test_a_body_is_shown(body: bytes, form: BodyForm, shown: Any, said: str) -> None:
    fields = body_fields(body, form, size_max=16 if len(body) < 1000 else 10)
    assert (fields["body"], fields["bodyForm"]) == (shown, said)


def test_a_long_body_is_cut() -> None:
    assert body_fields(b"{}" * 9, BodyForm.AUTO, size_max=3) == {
        "body": "{}{",
        "bodyForm": "text",
        "bodyCut": True,
    }
    assert body_fields("aü".encode(), BodyForm.AUTO, size_max=2)["bodyForm"] == "text"


def test_json_that_is_nested_too_deep_is_text() -> None:
    assert body_fields(b"[" * 100_000, BodyForm.AUTO, size_max=1 << 20)["bodyForm"] == "text"
