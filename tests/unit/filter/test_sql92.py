"""SQL92 expressions: what they are worth, and what is said of those that are wrong."""

import subprocess
import sys
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flintmq.filter import java_numbers
from flintmq.filter.errors import EvaluationError, SqlFilterError
from flintmq.filter.expression_limits import DEPTH_MAX, LENGTH_MAX, OPERAND_COUNT_MAX
from flintmq.filter.parser import TOKEN_COUNT_MAX
from flintmq.filter.sql92 import compile_in_steps, compile_sql
from tests.kits.filter.sql_generator import SqlGenerator

PROPERTIES: Final = {"a": "5", "b": "x", "t": "true", "n": "-3", "f": "5.5", "big": "99999999999"}
OPERANDS: Final = (
    '    "NOT" ...\n    "TRUE" ...\n    "FALSE" ...\n    "NULL" ...\n    <DECIMAL_LITERAL> ...\n'
    '    <FLOATING_POINT_LITERAL> ...\n    <STRING_LITERAL> ...\n    <ID> ...\n    "(" ...\n'
    '    "-" ...\n    '
)
PARSE: Final = "org.apache.rocketmq.filter.parser.ParseException: "
LEXICAL: Final = "org.apache.rocketmq.filter.parser.TokenMgrError: Lexical error at "


@pytest.mark.parametrize(
    "expression",
    [
        *("a = 5", "a = 5.0", "a = '5'", "5 = a", "a = 5L", "n = -3", "t = TRUE", "'x' <> missing"),
        *("a > 4", "f > 5.0", "4 < a", "a >= 5 AND a <= 5", "a < f", "missing = absent"),
        *("a BETWEEN 1 AND 9", "a NOT BETWEEN 6 AND 9", "a IN ('4', '5')", "b NOT IN ('y')"),
        *("missing IS NULL", "a IS NOT NULL", "a IS NULL = FALSE", "NOT (a = 6)", "NOT b"),
        *("a = 6 OR b = 'x'", "missing = 1 OR a = 5", "a = 5 AND b = 'x' OR FALSE", "TRUE"),
        *("a = 5 -- what\n AND b = 'x'", "a = 5 /* ** */ AND b /**/ = 'x'", "a is not null"),
        *("+a = 5", "- - 3 > 2", "(NOT b) = TRUE", "a = 5 this is not looked at", "big > 5.0"),
    ],
)
def test_these_hold(expression: str) -> None:
    assert compile_sql(expression).matches(PROPERTIES)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        *(("a", False), ("t", False), ("missing", None), ("NOT missing", None), ("NULL", None)),
        *(("missing = 5", None), ("5 = missing", False), ("missing <> 'x'", None)),
        *(("missing > 5", None), ("5 > missing", None), ("missing IN ('x')", None)),
        *(("missing NOT IN ('x')", None), ("a BETWEEN missing AND 4", False)),
        *(("a BETWEEN missing AND 9", None), ("a NOT BETWEEN missing AND 4", True)),
        *(("NULL AND FALSE", False), ("NULL AND TRUE", None), ("NULL OR TRUE", True)),
        *(("-a = 5", None), ("a = -a", False), ("5 = TRUE", False), ("A = 5", None)),
        *(("a LIKE 'x'", False), ("NOT a = 5", False), ("a = 2147483648", False)),
    ],
)
def test_null_is_neither_true_nor_false(expression: str, value: bool | None) -> None:
    compiled = compile_sql(expression)
    assert compiled.evaluate(PROPERTIES) is value
    assert compiled.matches(PROPERTIES) is (value is True)


@pytest.mark.parametrize(
    "expression", ["f > 5", "b = 5", "a > b", "TRUE = t", "big = 5", "NOT a > b = FALSE"[4:]]
)
def test_a_value_of_the_wrong_kind_is_an_error_and_no_match(expression: str) -> None:
    compiled = compile_sql(expression)
    with pytest.raises(EvaluationError):
        compiled.evaluate(PROPERTIES)
    assert not compiled.matches(PROPERTIES)


@pytest.mark.parametrize(
    ("expression", "remark"),
    [
        (
            "n >",
            f'{PARSE}Encountered "<EOF>" at line 1, column 3.\nWas expecting one of:\n{OPERANDS}',
        ),
        ("", f'{PARSE}Encountered "<EOF>" at line 0, column 0.\nWas expecting one of:\n{OPERANDS}'),
        (
            "a = 1 OR\n\tb = =",
            f'{PARSE}Encountered " "=" "= "" at line 2, column 13.\n'
            f"Was expecting one of:\n{OPERANDS}",
        ),
        (
            "a IN (5)",
            f'{PARSE}Encountered " <DECIMAL_LITERAL> "5 "" at line 1, column 7.\n'
            "Was expecting:\n    <STRING_LITERAL> ...\n    ",
        ),
        (
            "a NOT b",
            f'{PARSE}Encountered " "NOT" "NOT "" at line 1, column 3.\nWas expecting one of:\n'
            '    "BETWEEN" ...\n    "IN" ...\n    ">" ...\n    ">=" ...\n    "<" ...\n'
            '    "<=" ...\n    ',
        ),
        (
            "a = +",
            f'{PARSE}Encountered " "+" "+ "" at line 1, column 5.\n'
            f"Was expecting one of:\n{OPERANDS}",
        ),
        (
            "a IS b",
            f'{PARSE}Encountered " <ID> "b "" at line 1, column 6.\n'
            'Was expecting:\n    "NOT" ...\n    ',
        ),
        ("a != 5", f'{LEXICAL}line 1, column 3.  Encountered: "!" (33), after : ""'),
        ("a = 5;", f'{LEXICAL}line 1, column 7.  Encountered: <EOF> after : ""'),
        ("b = 'x", f'{LEXICAL}line 1, column 7.  Encountered: <EOF> after : "\\\'x"'),
        ("a.b = 5", f'{LEXICAL}line 1, column 3.  Encountered: "b" (98), after : "."'),
        ("\u00fc = 5", f'{LEXICAL}line 1, column 1.  Encountered: "\\u00fc" (252), after : ""'),
        (
            "a = '\U0001f600' AND ? ",
            f'{LEXICAL}line 1, column 14.  Encountered: "?" (63), after : ""',
        ),
        ("'x'", f"{PARSE}Expression will not result in a boolean value: 'x'"),
        ("-5 OR TRUE", f"{PARSE}Expression will not result in a boolean value: (- 5)"),
        ("a = NULL", "java.lang.RuntimeException: 'NULL' cannot be compared."),
        ("TRUE = 5", "java.lang.RuntimeException: 'TRUE' cannot be compared with '5'"),
        ("a > 'x'", "java.lang.RuntimeException: Value ''x'' cannot be compared."),
        ("NOT a > 7", "java.lang.RuntimeException: Value '(NOT a)' cannot be compared."),
        (
            "(a OR b IN ('x') AND n <> 1.5E-5) > 7",
            "java.lang.RuntimeException: Value '(a || (b IN ( x ) && (NOT (n == 1.5E-5))))' "
            "cannot be compared.",
        ),
        ("5 IN ('x')", "java.lang.RuntimeException: Expected a property for In expression, got: 5"),
        (
            "a BETWEEN 9 AND 1",
            "java.lang.RuntimeException: Illegal values of between, left value(9) must less than "
            "or equal to right value(1)",
        ),
        ("a = 0.0", "java.lang.RuntimeException: 0.0 is less than 4.9E-324"),
        ("a = 1e400", "java.lang.RuntimeException: 1e400 is greater than 1.7976931348623157E308"),
        (
            "a = 9223372036854775808",
            'java.lang.NumberFormatException: For input string: "9223372036854775808"',
        ),
    ],
)
def test_the_remark_on_a_wrong_expression_is_that_of_java(expression: str, remark: str) -> None:
    with pytest.raises(SqlFilterError) as caught:
        compile_sql(expression)
    assert str(caught.value) == remark


@pytest.mark.parametrize(
    ("text", "literal", "matches"),
    [
        *(
            ("+5", "5", True),
            ("007", "7", True),
            ("\u0665", "5", True),
            ("0" * 5000 + "5", "5", True),
        ),
        *((" 5 ", "5", False), ("1_0", "10", False), ("2147483648", "5", False)),
        *(
            (" 5 ", "5.0", True),
            ("5d", "5.0", True),
            ("0x1p3", "8.0", True),
            ("1_0", "10.0", False),
        ),
        *(("inf", "5.0", False), ("9" * 5000, "5.0", False), ("\U0001d7d7", "9", False)),
    ],
)
def test_texts_are_read_as_numbers_by_the_rules_of_java(
    text: str, literal: str, matches: bool
) -> None:
    assert compile_sql(f"a = {literal}").matches({"a": text}) is matches


def test_doubles_have_the_order_of_java() -> None:
    assert compile_sql("a > 5.0").matches({"a": "NaN"})
    assert compile_sql("a >= b AND b >= a").matches({"a": "NaN", "b": "-NaN"})
    assert compile_sql("a > b").matches({"a": "0.0", "b": "-0.0"})
    assert compile_sql("a > 1.5E308").matches({"a": "0x1p5000"})


def test_what_is_not_looked_at_is_known() -> None:
    assert compile_sql("a = 5 AMD b = 6").ignored == "AMD b = 6"
    assert compile_sql("a = 5 -- a comment\n").ignored == ""


def test_expressions_have_a_length_a_depth_and_a_cost_that_they_may_not_exceed() -> None:
    compile_sql("NOT " * DEPTH_MAX + "TRUE")
    with pytest.raises(SqlFilterError, match="inside each other"):
        compile_sql("NOT " * (DEPTH_MAX + 1) + "TRUE")
    with pytest.raises(SqlFilterError, match="inside each other"):
        compile_sql("a" + " IS NULL" * (DEPTH_MAX + 1))
    compile_sql(" OR ".join(["a"] * OPERAND_COUNT_MAX))
    with pytest.raises(SqlFilterError, match="operands"):
        compile_sql(" OR ".join(["a"] * (OPERAND_COUNT_MAX + 1)))
    with pytest.raises(SqlFilterError, match="words"):
        compile_sql("(" * (TOKEN_COUNT_MAX + 1))
    with pytest.raises(SqlFilterError, match="characters"):
        compile_sql("a" * (LENGTH_MAX + 1))
    nested = (TOKEN_COUNT_MAX - 1) // 2
    assert compile_sql("(" * nested + "a" + ")" * nested).evaluate({"a": "1"}) is False


@pytest.mark.parametrize("text", ["1." + "1" * 30_000, "0" * 30_000 + "1", "9" * 30_000])
@pytest.mark.parametrize("number", ["7", "7l", "7.5"])
def test_a_long_text_is_read_as_a_number_once_however_often_it_is_compared(
    text: str, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0

    def counted(parse: Callable[..., object]) -> Callable[..., object]:
        def parsed(*arguments: object, **named: object) -> object:
            nonlocal read
            read += 1
            return parse(*arguments, **named)

        return parsed

    for name in ("parse_int", "_parse_double"):
        monkeypatch.setattr(java_numbers, name, counted(getattr(java_numbers, name)))
    java_numbers._long_integer.cache_clear()
    java_numbers._long_double.cache_clear()
    compile_sql(" OR ".join([f"a = {number}"] * 300)).matches({"a": text})
    assert read == 1


def test_a_long_expression_is_compiled_in_many_steps() -> None:
    steps = compile_in_steps(" OR ".join(["a = 1"] * 300))
    assert sum(1 for _ in steps) > 50
    # Each of these signs might begin a comment, and each comment might end at the last character.
    with pytest.raises(SqlFilterError, match="words"):
        compile_sql("--" * (LENGTH_MAX // 2))
    assert compile_sql("a = 5 --" + "-" * 8000 + "\n").ignored == ""


@given(
    text=st.text()
    | st.text(alphabet="ab5.'()<>=-+/*, \n\tNOTANDIRBETWEULS")
    | st.integers().map(lambda seed: SqlGenerator(seed).pair().expression)
)
@example(text="\ud800 = '\udfff'")
def test_whatever_the_text_is_nothing_but_an_sql_error_is_raised(text: str) -> None:
    try:
        compiled = compile_sql(text)
    except SqlFilterError:
        return
    compiled.matches(PROPERTIES)


def test_the_parser_library_is_loaded_with_the_first_expression() -> None:
    code = (
        "import sys; import flintmq.filter.sql92 as it; assert 'lark' not in sys.modules;"
        "it.compile_sql('a = 5'); assert 'lark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
