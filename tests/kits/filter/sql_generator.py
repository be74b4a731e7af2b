"""Expressions and properties made up at random, the wrong ones as well as the right ones."""

import random
from collections.abc import Callable
from typing import Final, NamedTuple

NAMES: Final = ("a", "b", "c", "price", "_x", "$y", "TAGS", "e5", "missing", "trueish")
VALUES: Final = (
    *("5", "-3", "0", "10", "+5", "5.5", "007", "2147483647", "2147483648", "99999999999"),
    *("9223372036854775808", "-9223372036854775808", "x", "red", "it's", "true", "TRUE", "False"),
    *(" 5 ", "5 ", "5d", "1e3", "1E400", "-0.0", "0.0", "NaN", "-NaN", "Infinity", "-Infinity"),
    *("0x1p3", "0x10", "1_0", "\u0665", "\u00fc", "\U0001f600", ".5", "5.", ".", "-", "+", "e"),
    *("\U0001d7d7", "tRuE", "'", "null", "\t7\n", "0" * 30 + "7", "1" * 40),
)
STRINGS: Final = ("'x'", "'red'", "'it''s'", "''", "'5'", "'5.5'", "'true'", "'\u00fc'", "''''")
NUMBERS: Final = (
    *("5", "0", "10", "3", "5L", "7l", "2147483647", "2147483648", "99999999999"),
    *("9223372036854775807", "5.5", "5.", ".5", "1e3", "1.5E-3", "5E10", "4.9e-324", "0.1"),
)
WRONG_NUMBERS: Final = ("0.0", "1e400", "9223372036854775808", "5e-400", "010", "0x10", "0L", "5a")
WORDS: Final = (
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "(", ")", ",", "+", "-"),
    *("=", "<>", ">", ">=", "<", "<=", "a", "b", "'x'", "5", "5.5", "not", "LIKE", "CONTAINS"),
    *("#", "!", ".", "/", "'", "/*", "*/", "--", "\n", "\t", "\r\n", '"', "?", ";", "\u00fc"),
)
BLANKS: Final = (" ", " ", " ", " ", "  ", "\t", "\n", "\r\n", "\f", " /* c */ ", " -- c\n", "/**/")
CHARACTERS: Final = "#!./'*-_$ \n\t9eEL(),<>=\u00e9\U0001f600"
KEYWORDS: Final = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
DEPTH_MAX: Final = 4


class Pair(NamedTuple):
    """An expression and the properties of a message."""

    expression: str
    properties: dict[str, str]


class SqlGenerator:
    """Makes pairs; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pair(self) -> Pair:
        """Return a pair; about two in five expressions are damaged."""
        tokens = self._or(DEPTH_MAX)
        kind = self._random.random()
        if kind < 0.25:
            tokens = self._with_wrong_tokens(tokens)
        text = self._written(tokens)
        if 0.25 <= kind < 0.4:
            text = self._with_wrong_characters(text)
        return Pair(text, self._properties())

    def _properties(self) -> dict[str, str]:
        chosen = self._random.sample(NAMES[:-2], self._random.randrange(len(NAMES) - 2))
        return {name: self._random.choice(VALUES) for name in chosen}

    # -- expressions as lists of tokens --------------------------------------------------------

    def _or(self, depth: int) -> list[str]:
        return self._chain(self._and, "OR", depth)

    def _and(self, depth: int) -> list[str]:
        return self._chain(self._equality, "AND", depth)

    def _chain(self, part: Callable[[int], list[str]], word: str, depth: int) -> list[str]:
        tokens = part(depth)
        while self._random.random() < 0.25:
            tokens += [word, *part(depth)]
        return tokens

    def _equality(self, depth: int) -> list[str]:
        tokens = self._comparison(depth)
        while self._random.random() < 0.35:
            kind = self._random.randrange(4)
            if kind < 2:
                tokens += [("=", "<>")[kind], *self._comparison(depth)]
            else:
                tokens += ["IS", "NULL"] if kind == 2 else ["IS", "NOT", "NULL"]
        return tokens

    def _comparison(self, depth: int) -> list[str]:
        tokens = self._unary(depth)
        if self._random.random() < 0.5:
            tokens = [self._random.choice(NAMES)] if self._random.random() < 0.8 else tokens
            match self._random.randrange(4):
                case 0 | 1:
                    sign = self._random.choice((">", ">=", "<", "<="))
                    tokens += [sign, *self._operand(depth)]
                case 2:
                    tokens += self._maybe("NOT")
                    tokens += ["BETWEEN", *self._operand(depth), "AND", *self._operand(depth)]
                case _:
                    tokens += [*self._maybe("NOT"), "IN", "(", self._random.choice(STRINGS)]
                    while self._random.random() < 0.5:
                        tokens += [",", self._random.choice(STRINGS)]
                    tokens.append(")")
        return tokens

    def _operand(self, depth: int) -> list[str]:
        """Return what mostly can be compared."""
        kind = self._random.random()
        if kind < 0.6:
            return [*self._maybe("-"), self._random.choice(NUMBERS)]
        return [self._random.choice(NAMES)] if kind < 0.85 else self._unary(depth)

    def _unary(self, depth: int) -> list[str]:
        kind = self._random.random()
        if depth > 0 and kind < 0.25:
            return [self._random.choice(("NOT", "-", "+", "NOT")), *self._unary(depth - 1)]
        if depth > 0 and kind < 0.45:
            return ["(", *self._or(depth - 1), ")"]
        return [self._literal()] if kind < 0.65 else [self._random.choice(NAMES)]

    def _literal(self) -> str:
        kind = self._random.random()
        if kind < 0.04:
            return self._random.choice(WRONG_NUMBERS)
        if kind < 0.4:
            return self._random.choice(NUMBERS)
        return self._random.choice(STRINGS if kind < 0.7 else ("TRUE", "FALSE", "NULL", "TRUE"))

    def _maybe(self, word: str) -> list[str]:
        return [word] if self._random.random() < 0.3 else []

    # -- writing and damaging --------------------------------------------------------------

    def _written(self, tokens: list[str]) -> str:
        text = ""
        for token in tokens:
            if token in KEYWORDS and self._random.random() < 0.3:
                token = "".join(self._random.choice((one, one.lower())) for one in token)
            blank = self._random.choice(BLANKS)
            if self._random.random() < 0.1 and not (text[-1:].isalnum() and token[0].isalnum()):
                blank = ""
            text += blank + token if text else token
        return text

    def _with_wrong_tokens(self, tokens: list[str]) -> list[str]:
        tokens = list(tokens)
        for _ in range(self._random.randrange(1, 3)):
            at = self._random.randrange(len(tokens) + 1)
            match self._random.randrange(4):
                case 0:
                    tokens.insert(at, self._random.choice(WORDS))
                case 1:
                    tokens[at : at + 1] = [self._random.choice(WORDS)]
                case 2:
                    del tokens[at:]
                case _:
                    del tokens[at : at + 1]
        return tokens

    def _with_wrong_characters(self, text: str) -> str:
        at = self._random.randrange(len(text) + 1)
        match self._random.randrange(3):
            case 0:
                return text[:at]
            case 1:
                return text[:at] + text[at + 1 :]
            case _:
                return text[:at] + self._random.choice(CHARACTERS) + text[at:]
