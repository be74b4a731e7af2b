"""The grammar of SQL92 expressions, as lark reads it, and how Java names its tokens.

Precedence from low to high: OR; AND; ``=``, ``<>`` and IS NULL; the comparisons, BETWEEN and IN;
the signs and NOT; literals, properties and what stands in parentheses.  So ``NOT a = 'x'`` means
``(NOT a) = 'x'``.  A comment on a line counts as one only if the line has an end.
"""

from typing import Final

_KEYWORDS: Final = ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS")

_RULES: Final = r"""
start: or_expression

?or_expression: and_expression
    | or_expression OR and_expression -> logical_or
?and_expression: equality
    | and_expression AND equality -> logical_and
?equality: comparison
    | equality EQUAL comparison -> equal
    | equality UNEQUAL comparison -> unequal
    | equality IS NULL -> is_null
    | equality IS NOT NULL -> is_not_null
?comparison: unary
    | comparison (GREATER | GREATER_EQUAL | LESS | LESS_EQUAL) unary -> compare
    | comparison BETWEEN unary AND unary -> between
    | comparison NOT BETWEEN unary AND unary -> not_between
    | comparison IN LPAR texts RPAR -> is_in
    | comparison NOT IN LPAR texts RPAR -> is_not_in
texts: STRING (COMMA STRING)*
?unary: primary
    | PLUS unary -> plus
    | MINUS unary -> minus
    | NOT unary -> logical_not
?primary: STRING -> string
    | DECIMAL -> decimal
    | FLOAT -> floating
    | TRUE -> true
    | FALSE -> false
    | NULL -> null
    | ID -> variable
    | LPAR or_expression RPAR -> parenthesised

ID: /[A-Za-z_$][A-Za-z0-9_$]*/
FLOAT.2: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL: /0|[1-9][0-9]*[lL]?/
STRING: /'(?:[^']|'')*'/
EQUAL: "="
UNEQUAL.2: "<>"
GREATER_EQUAL.2: ">="
LESS_EQUAL.2: "<="
GREATER: ">"
LESS: "<"
LPAR: "("
COMMA: ","
RPAR: ")"
PLUS: "+"
MINUS: "-"

LINE_COMMENT.3: /--[^\r\n]*+(?:\r\n|\n|\r)/
BLOCK_COMMENT.3: /\/\*[^*]*\*+(?:[^*\/][^*]*\*+)*\//
BLANK: /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
%ignore BLANK
"""


def _keyword(name: str) -> str:
    """Return the token of a keyword in any case; letters of other alphabets are not the same."""
    letters = "".join(f"[{letter}{letter.lower()}]" for letter in name)
    return rf"{name}.2: /{letters}(?![A-Za-z0-9_$])/"


GRAMMAR: Final = "\n".join([_RULES, *map(_keyword, _KEYWORDS)])

JAVA_NAMES: Final[dict[str, str]] = {
    **{name: f'"{name}"' for name in _KEYWORDS},
    "DECIMAL": "<DECIMAL_LITERAL>",
    "FLOAT": "<FLOATING_POINT_LITERAL>",
    "STRING": "<STRING_LITERAL>",
    "ID": "<ID>",
    "EQUAL": '"="',
    "UNEQUAL": '"<>"',
    "GREATER": '">"',
    "GREATER_EQUAL": '">="',
    "LESS": '"<"',
    "LESS_EQUAL": '"<="',
    "LPAR": '"("',
    "COMMA": '","',
    "RPAR": '")"',
    "PLUS": '"+"',
    "MINUS": '"-"',
}
"""How remarks of Java name the tokens, in the order in which it lists them."""
