"""Message bodies as people can read them."""

import base64
import json
from enum import StrEnum
from typing import Any, Final

BODY_SHOWN_MAX: Final = 64 << 10
"""How many bytes of a body are shown unless the caller says otherwise."""


class BodyForm(StrEnum):
    """How a body is shown."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    JSON = "json"
    AUTO = "auto"
    """JSON if it is an object or a list, else text if it is UTF-8, else Base64."""


def body_fields(body: bytes, form: BodyForm, *, size_max: int) -> dict[str, Any]:
    """Return ``body``, ``bodyForm`` that tells how to read it, and ``bodyCut`` if it is cut off.

    A body that is longer than ``size_max`` bytes is cut there, and is not read as JSON then.
    """
    shown = body[:size_max]
    is_cut = len(shown) < len(body)
    fields: dict[str, Any] = {}
    if form in (BodyForm.JSON, BodyForm.AUTO):
        found = None if is_cut else _json(shown)
        if isinstance(found, dict | list) or (found is not None and form is BodyForm.JSON):
            fields = {"body": found, "bodyForm": BodyForm.JSON.value}
        else:
            form = BodyForm.TEXT if _is_text(shown, is_cut=is_cut) else BodyForm.BASE64
    if not fields:
        fields = {"body": _as_text(shown, form), "bodyForm": form.value}
    if is_cut:
        fields["bodyCut"] = True
    return fields


def _as_text(body: bytes, form: BodyForm) -> str:
    if form is BodyForm.HEX:
        return body.hex()
    if form is BodyForm.BASE64:
        return base64.b64encode(body).decode()
    return body.decode("utf-8", "replace")


def _json(body: bytes) -> object:
    """Return the value of a JSON body, None where it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _is_text(body: bytes, *, is_cut: bool) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        # The last character of a body that is cut off may be cut itself.
        return is_cut and error.start >= len(body) - 3
    return b"\0" not in body
