"""JSON that no MariaDB defines: SingleStore's functions, and MySQL 8.4 where MariaDB differs."""

from __future__ import annotations

import duckdb
import pytest

from kpipe.expressions.mysql.compiler import compiled
from resources.duckdb_engine.in_memory import register
from tests.cases import each_case
from tests.kpipe.expressions.mysql.json_answers import RESOLVE, Ask

MANUALS = [
    # SingleStore, "JSON_EXTRACT_<type>"
    ("""JSON_EXTRACT_DOUBLE('{"a":1, "b":2, "c": [3,4,5]}', 'b')""", "2"),
    ("""JSON_EXTRACT_JSON('{"a":1, "b":2, "c": [3,4,5]}', 'c')""", "[3,4,5]"),
    ("""JSON_EXTRACT_JSON('{"a":1, "b":2, "c": [3,4,5]}', 'c', 1)""", "4"),
    ("""JSON_EXTRACT_JSON('{"a":1, "b":2, "c": [3,4,5]}', 'z')""", None),
    ("""JSON_EXTRACT_BIGINT('{"a":true}', 'a')""", "1"),
    ("""JSON_EXTRACT_BIGINT('{"a":false}', 'a')""", "0"),
    ("""JSON_EXTRACT_BIGINT('{"a":1.4}', 'a')""", "1"),
    ("""JSON_EXTRACT_BIGINT('{"a":1.5}', 'a')""", "2"),
    ("""JSON_EXTRACT_BIGINT('{"a":"text"}', 'a')""", "0"),
    ("""JSON_EXTRACT_JSON('{"a":null}', 'a')""", None),
    ("""JSON_EXTRACT_STRING('no document', 'a')""", None),
    ("""JSON_EXTRACT_STRING(NULL, 'a')""", None),
    ("""JSON_EXTRACT_STRING('{"a":1}', NULL)""", None),
    # SingleStore, "JSON Keypaths"
    ("""JSON_EXTRACT_JSON('{"posIds": [{"text": "alpha"}, {"text": "beta"}, {"text": "gamma"}]}', 'posIds', 2, 'text')""",
     '"gamma"'),
    ("""'{"posIds": [{"text": "alpha"}, {"text": "beta"}, {"text": "gamma"}]}'::posIds::`2`::text""", '"gamma"'),
    ("""JSON_DELETE_KEY('{"posIds":[1,2,3]}', 'posIds', 2)""", '{"posIds":[1,2]}'),
    # SingleStore, "Extracting and Converting JSON Values": names with other letters
    ("""'{"a.a":{"b":1},"c":2}'::`a.a`::b""", "1"),
    # SingleStore, "JSON_SET_<type>"
    ("""JSON_SET_DOUBLE('{"alpha":1, "beta":2}', 'zeta', 'delta')""", '{"alpha":1,"beta":2,"zeta":0}'),
    ("""JSON_SET_STRING('{"a":1}', 'a', 'x"y')""", '{"a":"x\\"y"}'),
    ("""JSON_SET_JSON('{"a":1}', 'a', '[true]')""", '{"a":[true]}'),
    ("""JSON_SET_DOUBLE('{"a":1}', 'no', 'deeper', 5)""", '{"a":1}'),
    ("""JSON_SET_DOUBLE('{"a":[1]}', 'a', 3, 5)""", '{"a":[1,null,null,5]}'),
    ("""JSON_SET_DOUBLE('5', 'a', 5)""", None),
    ("""JSON_SET_DOUBLE('no document', 'a', 5)""", None),
    # SingleStore, "JSON_DELETE_KEY"
    ("""JSON_DELETE_KEY('{"alpha": 1, "beta": 2, "gamma": 3}', 'alpha')""", '{"beta":2,"gamma":3}'),
    ("""JSON_DELETE_KEY('{"alpha": 1, "beta": 2, "gamma": 3}', 'zeta')""", '{"alpha":1,"beta":2,"gamma":3}'),
    ("""JSON_DELETE_KEY('{"alpha":[1,2,3]}', 'alpha', 1)""", '{"alpha":[1,3]}'),
    # SingleStore, "JSON_SPLICE_<type>"
    ("""JSON_SPLICE_DOUBLE('[1,2,3]', 5, 6)""", "[1,2,3]"),
    ("""JSON_SPLICE_STRING('[1,2,3,4,5]', 2, 2, 'alpha', 'beta', '!')""", '[1,2,"alpha","beta","!",5]'),
    ("""JSON_SPLICE_STRING('[1,2,3,4,5]', -1, 1)""", "[1,2,3,4]"),
    ("""JSON_SPLICE_JSON('[1]', 0, 0, '{"a":1}', 'null')""", '[{"a":1},null,1]'),
    ("""JSON_SPLICE_JSON('{}', 0, 0, '1')""", None),
    # SingleStore, "JSON_ARRAY_CONTAINS_<type>"
    ("""JSON_ARRAY_CONTAINS_STRING('["alpha", "beta", "gamma", "delta"]', 'delta')""", "1"),
    ("""JSON_ARRAY_CONTAINS_STRING('beta', 'delta')""", "0"),
    ("""JSON_ARRAY_CONTAINS_STRING('1', 'delta')""", None),
    ("""JSON_ARRAY_CONTAINS_DOUBLE('["delta", 1, 2, 3]', 2)""", "1"),
    ("""JSON_ARRAY_CONTAINS_DOUBLE('["2"]', 2)""", "0"),
    ("""JSON_ARRAY_CONTAINS_DOUBLE('[2.0]', 2)""", "1"),
    ("""JSON_ARRAY_CONTAINS_JSON('["delta", {"b": 1, "a": 2}]', '{"a": 2, "b": 1}')""", "1"),
    ("""JSON_ARRAY_CONTAINS_STRING('["a"]', NULL)""", "0"),
    # SingleStore, "JSON_ARRAY_PUSH_<type>"
    ("""JSON_ARRAY_PUSH_STRING('["alpha", "beta"]', 'gamma')""", '["alpha","beta","gamma"]'),
    ("""JSON_ARRAY_PUSH_STRING("0", "beta")""", None),
    ("""JSON_ARRAY_PUSH_DOUBLE('[1, 2, 3]', 'delta')""", "[1,2,3,0]"),
    ("""JSON_ARRAY_PUSH_JSON('["alpha", false]', '{"beta":"gamma"}')""", '["alpha",false,{"beta":"gamma"}]'),
    # SingleStore, "JSON_GET_TYPE"
    ("JSON_GET_TYPE('true')", "boolean"),
    ("JSON_GET_TYPE('12345')", "double"),
    ("""JSON_GET_TYPE('"alpha, beta, gamma"')""", "string"),
    ("JSON_GET_TYPE('[1,2,3]')", "array"),
    ("""JSON_GET_TYPE('{"alpha":1, "beta":2}')""", "object"),
    ("JSON_GET_TYPE('null')", "null"),
    ("JSON_GET_TYPE('nothing')", None),
    # SingleStore, "JSON_KEYS": it says that the order of keys is not guaranteed; here it is the document's
    ("""JSON_KEYS('{"letter": "beta", "lang": {"Greek": 2 , "Coptic" : 4}}', 'lang')""", '["Greek","Coptic"]'),
    ("JSON_KEYS('{}')", "[]"),
    ("JSON_KEYS('[1]')", None),
    # SingleStore, "JSON_BUILD_OBJECT" and "JSON_BUILD_ARRAY"
    ("JSON_BUILD_OBJECT('id', 1, 'tag', 'sim')", '{"id":1,"tag":"sim"}'),
    ("JSON_BUILD_OBJECT()", "{}"),
    ("JSON_BUILD_OBJECT('id', 1, 'tag', NULL)", '{"id":1,"tag":null}'),
    ("JSON_BUILD_OBJECT('a', 1, 'b', 2, 'a', 3)", '{"a":3,"b":2}'),
    ("JSON_BUILD_ARRAY(1, 'abc', NULL)", '[1,"abc",null]'),
    # SingleStore, "TO_JSON"
    ("TO_JSON('hello')", '"hello"'),
    ("TO_JSON(1.50)", "1.50"),
    ("TO_JSON(DATE '2024-02-29')", '"2024-02-29"'),
    # SingleStore, "JSON_PRETTY"; keys stand in the document's order here
    ("""JSON_PRETTY('["j","a","20",10]')""", '[\n  "j",\n  "a",\n  "20",\n  10\n]'),
    ("""JSON_PRETTY('{"amount":30.50, "location":    "Berlin", "e": {}}')""",
     '{\n  "amount": 30.50,\n  "location": "Berlin",\n  "e": {}\n}'),
    # SingleStore, "JSON_ARRAY_PACK" and "JSON_ARRAY_UNPACK"
    ("HEX_OF(JSON_ARRAY_PACK('[1.0, 0.5, 2.0]'))", "0000803F0000003F00000040"),
    ("JSON_ARRAY_UNPACK(JSON_ARRAY_PACK('[12.1, 6.4]'))", "[12.1000004,6.4000001]"),
    ("JSON_ARRAY_UNPACK_F64(JSON_ARRAY_PACK_F64('[0.1]'))", "[0.10000000000000001]"),
    ("JSON_ARRAY_UNPACK_I16(JSON_ARRAY_PACK_I16('[1.0, 3.2]'))", "[1,3]"),
    # SingleStore, "JSON_MATCH_ANY"
    ("""JSON_MATCH_ANY_EXISTS('{"a": [{"b": null}, 5]}', 'a', 'b')""", "1"),
    ("""JSON_MATCH_ANY_EXISTS('{"a": [{"b": null}, 5]}', 'a', 1)""", "1"),
    ("""JSON_MATCH_ANY_EXISTS('{"a": [{"b": null}, 5]}', 'a', 'c')""", "0"),
    # MySQL 8.4, "The JSON Data Type": the last of equal keys counts
    ("""JSON_EXTRACT('{"a": 1, "a": 2}', '$.a')""", "2"),
    ("""JSON_LENGTH('{"a": 1, "a": 2}')""", "1"),
    ("""JSON_OBJECT('key1', 1, 'key2', 'abc', 'key1', 'def')""", '{"key1":"def","key2":"abc"}'),
    # MySQL 8.4, "Functions That Search JSON Values"
    ("""JSON_CONTAINS('{"a": 1}', '1', '$.z')""", None),
    ("""JSON_VALUE('{"a": true}', '$.a')""", "true"),
    ("""JSON_VALUE('{"fname": "Joe", "lname": "Palmer"}', '$.fname')""", "Joe"),
    ("""JSON_SEARCH('[10, "10"]', 'one', '10')""", '"$[1]"'),
    ("""JSON_SEARCH('[{"x y": "abc"}]', 'one', 'abc')""", '"$[0].\\"x y\\""'),
    ("""JSON_EXTRACT('{"s": "text"}', '$.s') IN ('text', 'other')""", "1"),
    (r"""'{"c": {"a": "x\\ny"}}'->'$.c'""", r'{"a":"x\ny"}'),
    ("""'{"c": {"a": "xy"}}'->>'$.c.a'""", "xy"),
    ("""'{"a": null}'->>'$.a'""", "null"),
    # MySQL 8.4, "Functions That Return JSON Value Attributes"
    ("JSON_TYPE('1e5')", "DOUBLE"),
    ("JSON_TYPE('18446744073709551615')", "UNSIGNED INTEGER"),
    ("JSON_VALID(5)", "0"),
    # MySQL 8.4, "Functions That Modify JSON Values": pairs that lead nowhere change nothing
    ("""JSON_ARRAY_APPEND('{"a": 1}', '$.z', 2)""", '{"a":1}'),
]  # fmt: skip


@each_case(("expression", "expected"), MANUALS, ids=[one for one, _ in MANUALS])
def test_the_manuals_examples_give_the_manuals_values(ask: Ask, expression: str, expected: str | None) -> None:
    if expression.startswith("HEX_OF("):
        vector = compiled(expression.removeprefix("HEX_OF(")[:-1], RESOLVE)
        with duckdb.connect() as connection:
            register(connection)
            assert connection.execute(f"SELECT hex({vector.sql})").fetchall() == [(expected,)]
        return
    assert ask(expression) == expected


DOCUMENT = """{"id": 9007199254740993, "price": 1.50, "e": 1E5, "zero": -0, "long": 0.12345678901234567890123, "name": "Köln",
"nested": {"deep": {"list": [10, {"x": "y"}]}}, "yes": true, "no": false, "none": null, "text": "12", "word": "abc",
"two words": 1, "`tick": 2, "2": "digit", "esc": "a\\u00e9\\n\\"\\ud83d\\ude00", "at": "2024-02-29T13:14:15",
"big": 123456789012345678901234567890}"""
PATHS = [
    ("{}::id", "9007199254740993"), ("{}::$id", "9007199254740993"), ("{}::%id", "9.007199254740992e15"),
    ("{}::price", "1.50"), ("{}::$price", "1.50"), ("{}::%price", "1.5"), ("{}::e", "1E5"), ("{}::$e", "1E5"),
    ("{}::%e", "100000"), ("{}::zero", "-0"), ("{}::long", "0.12345678901234567890123"),
    ("{}::big", "123456789012345678901234567890"), ("{}::name", '"Köln"'), ("{}::$name", "Köln"), ("{}::%name", "0"),
    ("{}::nested::deep", '{"list":[10,{"x":"y"}]}'), ("{}::$nested", '{"deep":{"list":[10,{"x":"y"}]}}'),
    ("{}::nested::deep::list::0", "10"), ("{}::nested::deep::list::`1`::$x", "y"), ("{}::nested::deep::list::2", None),
    ("{}::nested::deep::list::x", None), ("{}::id::x", None), ("{}::yes", "true"), ("{}::$yes", "true"),
    ("{}::%yes", "1"), ("{}::%no", "0"), ("{}::none", None), ("{}::$none", None), ("{}::%none", None),
    ("{}::nothing", None), ("{}::$nothing", None), ("{}::%nothing", None), ("{}::$text", "12"), ("{}::%text", "12"),
    ("{}::text", '"12"'), ("{}::`two words`", "1"), ("{}::```tick`", "2"), ("{}::2", '"digit"'), ("{}::$esc", 'aé\n"😀'),
    ("{}::`$.id`", None), ("JSON_EXTRACT_BIGINT({}, 'id')", "9007199254740993"),
    ("JSON_EXTRACT_BIGINT({}, 'big')", "9223372036854775807"),
    ("JSON_EXTRACT_STRING({}, 'nested', 'deep', 'list', 0)", "10"),
    ("JSON_EXTRACT_STRING({}, CONCAT('na', 'me'))", "Köln"), ("{}::id :> BIGINT", "9007199254740993"),
    ("{}::text :> BIGINT", "12"), ("{}::at :> DATETIME", "2024-02-29 13:14:15"), ("{}::$id + 1", "9.007199254740992e15"),
    ("{}::text + 1", "13"), ("{}::price * 2", "3"), ("CONCAT({}::name, '!')", '"Köln"!'),
    ("CONCAT({}::$name, '!')", "Köln!"), ("JSON_LENGTH({}::nested::deep::list)", "2"),
    ("{}::nested::deep = '{{\"list\": [10.0, {{\"x\": \"y\"}}]}}'", "0"), ("{}::nested = {}::nested", "1"),
    ("{}::price = '1.5' :> JSON", "1"),
    ("{}::price :> DECIMAL(10,1)", "1.5"), ("{}::long :> DECIMAL(30,20)", "0.12345678901234567890"),
    ("{}::big :> DECIMAL(38,2)", "123456789012345678901234567890.00"), ("{}::big :> DECIMAL(4,2)", "99.99"),
    ("{}::e :> DECIMAL(6,0)", "100000"),
    ("{}::id = 9007199254740993", "1"), ("{}::id = 9007199254740992", "0"), ("{}::big = 123456789012345678901234567890", "1"),
    ("{}::id IN (1, 9007199254740992)", "0"), ("{}::yes <=> 1", "1"), ("{}::none <=> NULL", "1"),
    # comparisons: a JSON text counts as what it says, and in double quotes as a document
    ("{}::$text = '12'", "1"), ("{}::text = '12'", "1"), ("{}::text = '\"12\"'", "1"), ("{}::text = 12", "1"),
    ("{}::%text > 11", "1"), ("{}::word = 'abc'", "1"), ("{}::word = 'ABC'", "0"), ("{}::word <> 'abc'", "0"),
    ("{}::word IN ('x', 'abc')", "1"), ("{}::word LIKE '%b%'", "1"), ("{}::$word LIKE 'a%'", "1"),
    ("{}::price = 1.5", "1"), ("{}::price > 1", "1"), ("{}::%price > 1", "1"), ("{}::price BETWEEN 1 AND 2", "1"),
    ("{}::nothing = 1", None), ("{}::none = 1", None), ("{}::none IS NULL", "1"), ("{}::at > '2024-02-28'", "1"),
    ("{}::at < CAST('2024-03-01' AS DATETIME)", "1"), ("IF({}::yes, 'yes', 'no')", "yes"),
    ("IF({}::no, 'yes', 'no')", "no"), ("IF({}::none, 'yes', 'no')", "no"), ("IF({}::word, 'yes', 'no')", "no"),
    ("{}::yes = TRUE", "1"), ("{}::yes = 1", "1"), ("{}::$yes = 'true'", "1"), ("{}::yes AND {}::id", "1"),
    ("NOT {}::no", "1"), ("GREATEST({}::%price, 2)", "2"), ("COALESCE({}::none, 'x')", "x"),
    ("COALESCE({}::$nothing, {}::$name)", "Köln"),
]  # fmt: skip


@each_case("column", ["doc", "said"])
@each_case(("expression", "expected"), PATHS, ids=[one for one, _ in PATHS])
def test_a_member_keeps_its_digits_and_counts_as_what_it_says(
    ask: Ask, column: str, expression: str, expected: str | None
) -> None:
    found = ask(expression.replace("{}", column).replace("{{", "{").replace("}}", "}"), DOCUMENT)
    assert found == expected


def test_a_scalar_has_no_members_and_an_array_only_places(ask: Ask) -> None:
    for document in ("5", '"a"', "true", "null", "[]", "[1]", ""):
        assert ask("said::a", document) is None
    assert ask("doc::0", "[7]") == "7"
    assert ask("doc::0", '{"0": 8}') == "8"
    assert ask("doc::`00`", "[7]") == "7"
    assert ask("doc::99999999999999999999", "[7]") is None
    assert ask("JSON_EXTRACT_JSON(doc, '')", '{"": 9}') == "9"


@each_case(
    "document",
    [
        "",
        " ",
        "nothing",
        "{",
        "[1,]",
        "{'a': 1}",
        "NaN",
        "Infinity",
        "01",
        "1.",
        '"\\ud800"',
        '{"a": 1} x',
        "[1] // x",
        "\ufeff{}",
    ],
)
def test_a_text_that_is_no_document_is_null_to_singlestore_and_an_error_to_mysql(ask: Ask, document: str) -> None:
    for expression in (
        "said::a",
        "JSON_GET_TYPE(said)",
        "JSON_LENGTH(said)",
        "JSON_KEYS(said)",
        "said !:> JSON",
        "JSON_DELETE_KEY(said, 'a')",
    ):
        assert ask(expression, document) is None, expression
    assert ask("JSON_VALID(said)", document) == "0"
    assert ask("IF(JSON_VALID(said), JSON_EXTRACT(said, '$.a'), 'none')", document) == "none"
    for expression in (
        "JSON_EXTRACT(said, '$.a')",
        "JSON_SET(said, '$.a', 1)",
        "JSON_TYPE(said)",
        "CAST(said AS JSON)",
        "said :> JSON",
    ):
        with pytest.raises(duckdb.InvalidInputException, match="invalid JSON document"):
            ask(expression, document)
