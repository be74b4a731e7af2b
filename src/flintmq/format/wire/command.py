"""Commands: the requests and answers that frames carry, in two header notations.

The JSON header is one compact object; Java writes its members in this order and leaves out a
remark or ext fields that are null:

    {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":1,
     "remark":"...","serializeTypeCurrentRPC":"JSON","version":409}

The ROCKETMQ header is binary and big-endian:

    at  size  field        meaning
     0     2  code         request code, or response code of an answer
     2     1  language     see LanguageCode
     3     2  version      release of the sender
     5     4  opaque       ties an answer to its request
     9     4  flag         bit 0: answer; bit 1: one-way
    13     4  remark_size  zero: no remark
    17     R  remark       UTF-8
  17+R     4  ext_size     zero: no ext fields
  21+R     E  ext fields   until ext_size is used up: i16 key size, key, i32 value size, value

Input is read as Java and its clients in other languages need it: ext fields of any JSON type,
the language as name or number, members missing or unknown, raw control characters in strings,
bytes that are no UTF-8 (each becomes U+FFFD), lone surrogates (each becomes a question mark).
What is decoded can therefore always be encoded.
"""

import json
import struct
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

import orjson

from flintmq.format.wire.codes import PROTOCOL_VERSION, LanguageCode
from flintmq.format.wire.frame import (
    FRAME_SIZE_MAX,
    Frame,
    HeaderType,
    encode_json_prefix,
    encode_prefix,
)
from flintmq.format.wire.remoting_errors import CommandHeaderError, LocalProtocolError
from flintmq.model.value_class import FieldEquality

RESPONSE_FLAG: Final = 1
ONE_WAY_FLAG: Final = 2

EXT_FIELD_COUNT_MAX: Final = 4096
"""Ext fields a command may have; RocketMQ's own have fewer than thirty."""

_FIXED: Final = struct.Struct(
    ">"
    "h"  # code
    "b"  # language
    "h"  # version
    "i"  # opaque
    "i"  # flag
)
_LONG_SIZE: Final = struct.Struct(">i")  # of remark, ext fields and values
_KEY_SIZE: Final = struct.Struct(">h")
_SHORT_ENTRY: Final = struct.Struct(">hBi")  # key size 1, the key, value size
_I32_MIN: Final = -(1 << 31)
_I32_MAX: Final = (1 << 31) - 1
_KEY_SIZE_MAX: Final = (1 << 15) - 1
# Digits of the longest 32-bit number with its sign.
_NUMBER_TEXT_MAX: Final = 11

_LANGUAGES: Final = {int(member): member for member in LanguageCode}
_LANGUAGE_NAMES: Final = {member.name: member for member in LanguageCode}


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Command(FieldEquality):
    """One request or answer.

    ``serialize_type`` is the notation of its header; `answer` keeps it, so that a peer is
    answered in the form it speaks.
    """

    code: int
    language: LanguageCode = LanguageCode.JAVA
    version: int = PROTOCOL_VERSION
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    serialize_type: HeaderType = HeaderType.JSON
    empty_ext_fields: bool = field(default=False, compare=False)
    """Whether ext fields are written even if there are none.  Java writes an empty map for an
    answer that has a header without values and nothing for one that has no header; readers see
    no difference."""

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_one_way(self) -> bool:
        """Whether this is a request that must not be answered."""
        # The C++ client marks its answers one-way too, so the response bit decides first.
        return self.flag & (RESPONSE_FLAG | ONE_WAY_FLAG) == ONE_WAY_FLAG

    def answer(
        self,
        code: int,
        *,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> "Command":
        """Return an answer to this request: the same opaque, in the same notation.

        An empty map of ``ext_fields`` is written as such, None is left out.
        """
        return Command(
            code=code,
            opaque=self.opaque,
            flag=RESPONSE_FLAG,
            remark=remark,
            ext_fields={} if ext_fields is None else ext_fields,
            body=body,
            serialize_type=self.serialize_type,
            empty_ext_fields=ext_fields is not None,
        )


def decode_command(frame: Frame) -> Command:
    """Return the command in ``frame``; a header that is none raises CommandHeaderError."""
    if frame.header_type is HeaderType.JSON:
        return _decode_json(frame.header, frame.body)
    return _decode_binary(frame.header, frame.body)


def encode_command(command: Command, *, frame_size_max: int = FRAME_SIZE_MAX) -> bytes:
    """Return the whole frame of ``command``; what has no wire form raises LocalProtocolError."""
    head = encode_command_head(command, body_size=len(command.body), frame_size_max=frame_size_max)
    return head + command.body


def encode_command_head(
    command: Command, *, body_size: int, frame_size_max: int = FRAME_SIZE_MAX
) -> bytes:
    """Return the frame of ``command`` up to where a body of ``body_size`` bytes follows.

    The body of the command itself is not looked at: the caller sends one from elsewhere.
    """
    header = encode_header(command)
    prefix = encode_prefix(
        command.serialize_type,
        header_size=len(header),
        body_size=body_size,
        frame_size_max=frame_size_max,
    )
    return prefix + header


def encode_answer_head(
    *,
    code: int,
    opaque: int,
    remark: str | None,
    ext_json: str | None,
    body_size: int,
    frame_size_max: int = FRAME_SIZE_MAX,
) -> bytes:
    """Return the frame of an answer in JSON up to where its body follows.

    It is what `encode_command_head` gives for such a command, from ext fields that are JSON
    already.
    """
    header = _json_answer(code, str(opaque), remark, ext_json).encode("utf-8", "replace")
    return encode_json_prefix(len(header), body_size, frame_size_max) + header


def answer_header_form(*, code: int, remark: str, ext_form: str) -> bytes:
    """Return the JSON header of answers that differ in numbers only, each of which is a ``%d``.

    Those of the ext fields come first, the opaque number is the last.
    """
    assert "%" not in remark
    return _json_answer(code, "%d", remark, ext_form).encode()


def _json_answer(code: int, opaque: str, remark: str | None, ext_json: str | None) -> str:
    ext = "" if ext_json is None else f'"extFields":{ext_json},'
    said = "" if remark is None else f'"remark":{encode_basestring(remark)},'
    return (
        f'{{"code":{code:d},{ext}"flag":{RESPONSE_FLAG},"language":"JAVA","opaque":{opaque},{said}'
        f'"serializeTypeCurrentRPC":"JSON","version":{PROTOCOL_VERSION}}}'
    )


def encode_header(command: Command) -> bytes:
    """Return the header of ``command`` in the notation it asks for."""
    if command.serialize_type is HeaderType.JSON:
        return _encode_json(command)
    return _encode_binary(command)


def _fail(reason: str) -> NoReturn:
    raise CommandHeaderError(reason)


# JSON


def _refuse_constant(name: str) -> NoReturn:
    _fail(f"{name} in a JSON header")


# Numbers with a fraction or exponent stay the text they were.
_JSON_DECODER: Final = json.JSONDecoder(
    strict=False, parse_float=str, parse_constant=_refuse_constant
)
_STRINGS: Final = frozenset({str})
_TEXTS: Final = frozenset({str, int, bool, type(None)})
_JSON_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def json_members(header: bytes) -> dict[str, Any] | None:
    """Return the members of a JSON header, None for one that is not strictly JSON.

    It is the quick look for who can tell from it that a command is of the usual kind;
    `command_of_members` makes a command of them.
    """
    try:
        members = orjson.loads(header)
    except orjson.JSONDecodeError:
        return None
    return members if members.__class__ is dict else None


def _decode_json(header: bytes, body: bytes) -> Command:
    members = json_members(header)
    if members is not None:
        return command_of_members(members, header, body)
    command = _command(_lenient_members(header), body)
    if b"\\ud" in header or b"\\uD" in header:
        _replace_surrogates(command)
    return command


def command_of_members(members: dict[str, Any], header: bytes, body: bytes) -> Command:
    """Return the command with a JSON header that `json_members` has taken apart."""
    ext_value = members.get("extFields")
    if ext_value.__class__ is dict and not _TEXTS.issuperset(map(type, ext_value.values())):
        # A number with a fraction has to stay the text it was.
        members = _lenient_members(header)
    return _command(members, body)


def _command(members: Any, body: bytes) -> Command:
    if not isinstance(members, dict):
        _fail("the JSON header is no object")
    remark = members.get("remark")
    ext_value = members.get("extFields")
    code, version, opaque, flag = _integers(members)
    return Command(
        code=code,
        language=_language(members.get("language")),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=None if remark is None else _text(remark),
        ext_fields=_ext_fields(ext_value),
        body=body,
        serialize_type=HeaderType.JSON,
        empty_ext_fields=ext_value is not None,
    )


def _lenient_members(header: bytes) -> Any:
    """Decode what is no strict JSON, as Java does."""
    try:
        return _JSON_DECODER.decode(header.decode("utf-8", "replace"))
    # Besides syntax errors: a number of too many digits, and nesting without end.
    except (ValueError, RecursionError) as error:
        raise CommandHeaderError(f"no JSON header: {type(error).__name__}") from error


def _integers(members: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return code, version, opaque and flag; nearly always they are small integers already."""
    get = members.get
    code, version, opaque, flag = get("code"), get("version"), get("opaque"), get("flag")
    if (
        code.__class__ is version.__class__ is opaque.__class__ is flag.__class__ is int
        and -_I32_MAX <= code <= _I32_MAX
        and -_I32_MAX <= version <= _I32_MAX
        and -_I32_MAX <= opaque <= _I32_MAX
        and -_I32_MAX <= flag <= _I32_MAX
    ):
        return code, version, opaque, flag
    return (
        _integer(members, "code"),
        _integer(members, "version"),
        _integer(members, "opaque"),
        _integer(members, "flag"),
    )


def _integer(members: dict[str, Any], name: str) -> int:
    value = members.get(name, 0)
    if value.__class__ is not int:
        value = _lenient_integer(value, name)
    if not _I32_MIN <= value <= _I32_MAX:
        _fail(f"{name} does not fit 32 bits")
    return int(value)


def _lenient_integer(value: object, name: str) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and len(value) <= _NUMBER_TEXT_MAX:
        try:
            return int(value)
        except ValueError as error:
            raise CommandHeaderError(f"{name} is no number") from error
    _fail(f"{name} is no number")


def _language(value: object) -> LanguageCode:
    if isinstance(value, str):
        member = _LANGUAGE_NAMES.get(value)
        if member is not None:
            return member
        value = int(value) if value.isdecimal() and len(value) <= _NUMBER_TEXT_MAX else -1
    if value is None:
        return LanguageCode.JAVA
    if not isinstance(value, int):
        return LanguageCode.OTHER
    return _LANGUAGES.get(value, LanguageCode.OTHER)


def _ext_fields(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        _fail("extFields is no object")
    if len(value) > EXT_FIELD_COUNT_MAX:
        _fail(f"{len(value)} ext fields, the limit is {EXT_FIELD_COUNT_MAX}")
    if _STRINGS.issuperset(map(type, value.values())):
        return value
    return {key: _text(item) for key, item in value.items() if item is not None}


def _text(value: object) -> str:
    """Return the text of a JSON value as Java sees it; containers become JSON again."""
    if isinstance(value, str):
        return value
    try:
        return _JSON_ENCODER.encode(value)
    except (ValueError, RecursionError) as error:
        raise CommandHeaderError("a value without text in a JSON header") from error


def _replace_surrogates(command: Command) -> None:
    """Make escaped lone surrogates what Java makes of them when it writes UTF-8."""
    if command.remark is not None:
        command.remark = _encodable(command.remark)
    command.ext_fields = {
        _encodable(key): _encodable(value) for key, value in command.ext_fields.items()
    }


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _encode_json(command: Command) -> bytes:
    ext = remark = ""
    if command.ext_fields or command.empty_ext_fields:
        ext = f'"extFields":{_json_object(command.ext_fields)},'
    if command.remark is not None:
        remark = f'"remark":{_JSON_ENCODER.encode(command.remark)},'
    text = (
        f'{{"code":{command.code:d},{ext}"flag":{command.flag:d},'
        f'"language":"{command.language.name}","opaque":{command.opaque:d},{remark}'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version:d}}}'
    )
    return text.encode("utf-8", "replace")


def _json_object(fields: dict[str, str]) -> str:
    try:
        return orjson.dumps(fields).decode()
    except orjson.JSONEncodeError:
        # A lone surrogate, for which there is no UTF-8.
        return _JSON_ENCODER.encode(fields)


# ROCKETMQ


def _decode_binary(header: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(header)
        remark_start = _FIXED.size + _LONG_SIZE.size
        (remark_size,) = _LONG_SIZE.unpack_from(header, _FIXED.size)
        # A negative size must not lead backwards.
        if remark_size < 0:
            _fail(f"remark of {remark_size} bytes")
        remark_end = remark_start + remark_size
        (ext_size,) = _LONG_SIZE.unpack_from(header, remark_end)
    except struct.error as error:
        raise CommandHeaderError(f"binary header of {len(header)} bytes") from error
    ext_start = remark_end + _LONG_SIZE.size
    if not 0 <= ext_size <= len(header) - ext_start:
        _fail(f"ext fields of {ext_size} bytes in a header of {len(header)}")
    return Command(
        code=code,
        language=_LANGUAGES.get(language, LanguageCode.OTHER),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=header[remark_start:remark_end].decode("utf-8", "replace") or None,
        ext_fields=_binary_ext_fields(header[ext_start : ext_start + ext_size]),
        body=body,
        serialize_type=HeaderType.ROCKETMQ,
    )


def _binary_ext_fields(source: bytes) -> dict[str, str]:
    """Return the entries that fill ``source``.

    A value of no bytes is Java's null; its writer leaves nulls out, so an empty text was meant.
    Of entries with one key the last counts: a Java client that signs writes the fields of sends
    and pulls twice.
    """
    fields: dict[str, str] = {}
    at, end, entry_count = 0, len(source), 0
    short_end = end - _SHORT_ENTRY.size
    while at < end:
        entry_count += 1
        if entry_count > EXT_FIELD_COUNT_MAX:
            _fail(f"more than {EXT_FIELD_COUNT_MAX} ext fields")
        # Sends and their like have names of one letter.
        if at <= short_end:
            key_size, letter, value_size = _SHORT_ENTRY.unpack_from(source, at)
            value_start = at + _SHORT_ENTRY.size
            if key_size == 1 and letter < 0x80 and 0 <= value_size <= end - value_start:
                at = value_start + value_size
                fields[chr(letter)] = source[value_start:at].decode("utf-8", "replace")
                continue
        at = _take_entry(source, at, fields)
    return fields


def _take_entry(source: bytes, at: int, fields: dict[str, str]) -> int:
    """Read the entry at ``at`` into ``fields`` and return where the next one starts."""
    end = len(source)
    try:
        (key_size,) = _KEY_SIZE.unpack_from(source, at)
        key_start = at + _KEY_SIZE.size
        key_end = key_start + max(key_size, 0)
        (value_size,) = _LONG_SIZE.unpack_from(source, key_end)
    except struct.error as error:
        raise CommandHeaderError("an ext field ends beyond the ext fields") from error
    value_start = key_end + _LONG_SIZE.size
    value_end: int = value_start + value_size
    if key_size < 0 or value_size < 0 or value_end > end:
        _fail(f"ext field of {key_size} and {value_size} bytes, {end} for all")
    key = source[key_start:key_end].decode("utf-8", "replace")
    fields[key] = source[value_start:value_end].decode("utf-8", "replace")
    return value_end


def _encode_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode("utf-8", "replace")
    ext: list[bytes] = []
    for key, value in command.ext_fields.items():
        key_bytes = key.encode("utf-8", "replace")
        value_bytes = value.encode("utf-8", "replace")
        if len(key_bytes) > _KEY_SIZE_MAX:
            raise LocalProtocolError(f"name of an ext field of {len(key_bytes)} bytes")
        ext += (_KEY_SIZE.pack(len(key_bytes)), key_bytes)
        ext += (_LONG_SIZE.pack(len(value_bytes)), value_bytes)
    try:
        fixed = _FIXED.pack(
            command.code, command.language, command.version, command.opaque, command.flag
        )
    except struct.error as error:
        raise LocalProtocolError(
            f"no binary header for code {command.code}, version {command.version}, "
            f"opaque {command.opaque}, flag {command.flag}"
        ) from error
    ext_size = sum(map(len, ext))
    return b"".join((fixed, _LONG_SIZE.pack(len(remark)), remark, _LONG_SIZE.pack(ext_size), *ext))
