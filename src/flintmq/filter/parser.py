"""Parses expressions with lark, token by token, and says what is wrong as Java's parser says it.

Java's parser reads no further than it must: text behind a complete expression is not looked at,
save the first token of it.  It also checks what it has read before it looks at the next token, so a
comparison that makes no sense is reported rather than the mistake behind it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol, Self, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from flintmq.filter import expressions
from flintmq.filter.errors import SqlFilterError
from flintmq.filter.grammar import GRAMMAR, JAVA_NAMES
from flintmq.filter.java_places import escaped, lexical_error, place_of
from flintmq.filter.nodes import BooleanConstant, IsNull, Negation, Node, Property
from flintmq.model.steps import Steps

_JAVA_PARSE_ERROR: Final = "org.apache.rocketmq.filter.parser.ParseException: "
_JAVA_TOKEN_ERROR: Final = "org.apache.rocketmq.filter.parser.TokenMgrError: "
TOKEN_COUNT_MAX: Final = 2500
"""Words and signs of an expression; parsing takes some 20 to 30 microseconds for each."""

TOKENS_IN_A_STEP: Final = 16

_END: Final = "$END"
_AFTER_NOT: Final = frozenset({"BETWEEN", "IN"})
_INSTEAD_OF_NOT: Final = _AFTER_NOT | {"GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"}
_AFTER_IS: Final = frozenset({"NOT", "NULL"})


class _ParserState(Protocol):
    value_stack: list[object]


class _Parser(Protocol):
    """What is used of lark's interactive parser, whose own methods have no types."""

    parser_state: _ParserState

    def feed_token(self, token: Token) -> object: ...

    def feed_eof(self) -> Node: ...

    def accepts(self) -> Iterable[str]: ...

    def copy(self, *, deepcopy_values: bool) -> Self: ...


class Parsed(NamedTuple):
    """A complete expression, and where the text behind it begins that was not looked at."""

    root: Node
    end: int | None


def parse(units: str) -> Steps[Parsed]:
    """Parse an expression, given as `java_places.java_units`; SqlFilterError if it is none.

    It may be interrupted where it yields.
    """
    parser = _new_parser()
    before: Token | None = None
    try:
        for count, token in enumerate(_lark().lex(units), start=1):
            if count > TOKEN_COUNT_MAX:
                raise SqlFilterError(f"more than {TOKEN_COUNT_MAX} words and signs")
            accepted = _feed(parser, token, before, units)
            if not accepted:
                return Parsed(parser.feed_eof(), token.start_pos)
            before = token
            if not count % TOKENS_IN_A_STEP:
                yield
    except UnexpectedCharacters as error:
        # A comparison would have been checked before this was looked at.
        _reduce(parser, "GREATER")
        raise SqlFilterError(
            _JAVA_TOKEN_ERROR + lexical_error(units, error.pos_in_stream or 0)
        ) from error
    if _END not in parser.accepts():
        raise _unexpected(parser, None, before, units)
    return Parsed(parser.feed_eof(), None)


def _new_parser() -> _Parser:
    return cast("_Parser", _lark().parse_interactive(""))


def _feed(parser: _Parser, token: Token, before: Token | None, units: str) -> bool:
    """Give the parser a token; return False if the expression is complete without it."""
    try:
        parser.feed_token(token)
    except UnexpectedToken as error:
        if _END in parser.accepts():
            return False
        raise _unexpected(parser, token, before, units) from error
    return True


def _reduce(parser: _Parser, *names: str) -> _Parser:
    """Return the parser with what is complete put together before the first token that can follow.

    SqlFilterError if what is put together is wrong.
    """
    accepted = parser.accepts()
    copied = parser.copy(deepcopy_values=False)
    for name in names:
        if name in accepted:
            copied.feed_token(Token(name, ""))
            break
    return copied


def _pending_plus(parser: _Parser) -> Token | None:
    """Return the first plus whose operand is not complete.

    Java looks at the whole operand before it takes the plus; a mistake in it is one of the plus.
    """
    stack = parser.parser_state.value_stack
    return next((one for one in stack if isinstance(one, Token) and one.type == "PLUS"), None)


@functools.cache
def _operands() -> frozenset[str]:
    """Return the tokens with which an operand can begin."""
    return frozenset(_new_parser().accepts())


def _unexpected(
    parser: _Parser, token: Token | None, before: Token | None, units: str
) -> SqlFilterError:
    """Return the error for a token, or the end if it is None, that cannot stand where it does."""
    expected = frozenset(parser.accepts())
    plus = _pending_plus(_reduce(parser, "RPAR", "AND"))
    if plus is not None:
        token, expected = plus, _operands()
    elif before is not None and before.type == "NOT" and expected == _AFTER_NOT:
        # Java looks at both tokens before it takes the first.
        token, expected = before, _INSTEAD_OF_NOT
    elif expected == _AFTER_IS:
        expected = frozenset({"NOT"})
    if token is None:
        found, place = "<EOF>", place_of(units, len(units) - 1)
    else:
        found = f' {JAVA_NAMES[token.type]} "{escaped(token)} "'
        place = place_of(units, token.start_pos or 0)
    # A plus is never named: it is found by looking ahead.
    names = [JAVA_NAMES[one] for one in JAVA_NAMES if one in expected and one != "PLUS"]
    wanted = "".join(f"    {name} ...\n" for name in names)
    head = "Was expecting one of:" if len(names) > 1 else "Was expecting:"
    return SqlFilterError(
        f'{_JAVA_PARSE_ERROR}Encountered "{found}" at {place}.\n{head}\n{wanted}    '
    )


_ACTIONS: Final[dict[str, Callable[[list[Any]], object]]] = {
    "start": lambda parts: expressions.condition(parts[0]),
    "logical_or": lambda parts: expressions.logic(parts[0], parts[2], is_and=False),
    "logical_and": lambda parts: expressions.logic(parts[0], parts[2], is_and=True),
    "equal": lambda parts: expressions.equal(parts[0], parts[2]),
    "unequal": lambda parts: expressions.invert(expressions.equal(parts[0], parts[2])),
    "is_null": lambda parts: IsNull(parts[0]),
    "is_not_null": lambda parts: expressions.invert(IsNull(parts[0])),
    "compare": lambda parts: expressions.compare(parts[0], str(parts[1]), parts[2]),
    "between": lambda parts: expressions.between(parts[0], parts[2], parts[4], is_inverted=False),
    "not_between": lambda parts: expressions.between(
        parts[0], parts[3], parts[5], is_inverted=True
    ),
    "texts": lambda parts: parts[::2],
    "is_in": lambda parts: expressions.member(parts[0], parts[3], is_inverted=False),
    "is_not_in": lambda parts: expressions.member(parts[0], parts[4], is_inverted=True),
    "plus": lambda parts: parts[1],
    "minus": lambda parts: Negation(parts[1]),
    "logical_not": lambda parts: expressions.invert(parts[1]),
    "parenthesised": lambda parts: parts[1],
    "string": lambda parts: expressions.string(parts[0]),
    "decimal": lambda parts: expressions.decimal(parts[0]),
    "floating": lambda parts: expressions.floating(parts[0]),
    "true": lambda parts: BooleanConstant(True),
    "false": lambda parts: BooleanConstant(False),
    "null": lambda parts: BooleanConstant(None),
    "variable": lambda parts: Property(str(parts[0])),
}
"""What is made of the parts of each rule of the grammar, tokens included."""


@functools.cache
def _lark() -> Lark:
    builder: Transformer[Token, Node] = Transformer()
    for name, action in _ACTIONS.items():
        setattr(builder, name, action)
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=builder)
