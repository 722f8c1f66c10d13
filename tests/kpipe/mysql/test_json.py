"""JSON where no MariaDB can say what is right: SingleStore's functions, MySQL 8.4 where MariaDB differs, and hostile documents.

Each example of a manual names its page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import duckdb
import pytest

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.compiler import check, compiled, of_columns
from kpipe.expressions.mysql.function_list import known
from kpipe.expressions.mysql.refused.functions import REFUSED
from kpipe.expressions.mysql.values import text
from kpipe.schema.columns import Columns
from resources.duckdb_engine.in_memory import register

RESOLVE = of_columns(Columns.of({"doc": "JSON", "said": "VARCHAR"}))
Ask = Callable[..., str | None]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """The printed value of an expression, of which `doc` and `said` are the document that is given."""
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        register(connection)
        connection.execute("CREATE TABLE record (doc JSON, said VARCHAR)")

        def asked(expression: str, document: str | None = None) -> str | None:
            connection.execute("DELETE FROM record")
            connection.execute("INSERT INTO record VALUES (TRY_CAST(? AS JSON), ?)", [document, document])
            sql = text(compiled(expression, RESOLVE)).sql
            found = connection.execute(f"SELECT {sql} FROM record").fetchall()[0][0]
            return None if found is None else str(found)

        yield asked


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


@pytest.mark.parametrize(("expression", "expected"), MANUALS, ids=[one for one, _ in MANUALS])
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


@pytest.mark.parametrize("column", ["doc", "said"])
@pytest.mark.parametrize(("expression", "expected"), PATHS, ids=[one for one, _ in PATHS])
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


@pytest.mark.parametrize(
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
        with pytest.raises(duckdb.InvalidInputException, match="no JSON document"):
            ask(expression, document)


def test_levels_are_bounded_as_in_mysql(ask: Ask) -> None:
    deep = "[" * 100 + "1" + "]" * 100
    assert ask("JSON_DEPTH(said)", deep) == "101"
    for levels in (101, 5_000, 200_000):
        with pytest.raises(duckdb.InvalidInputException, match="more than 100 levels"):
            ask("said::a", "[" * levels + "]" * levels)
    wide = json.dumps([[1]] * 1000)
    assert ask("JSON_LENGTH(said)", wide) == "1000"


def test_documents_of_megabytes(ask: Ask) -> None:
    document = json.dumps({f"k{at}": "ü" * 100 for at in range(20_000)} | {"last": [1.25]})
    assert ask("said::last::%`0`", document) == "1.25"
    changed = ask("JSON_SET_STRING(said, 'k1', 'x')", document)
    assert changed is not None and json.loads(changed) == {**json.loads(document), "k1": "x"}


def test_numbers_of_thousands_of_digits(ask: Ask) -> None:
    fraction, digits = "0.4" + "9" * 5000, "9" * 5000
    assert ask("said::a", f'{{"a": {digits}}}') == digits
    assert ask("JSON_EXTRACT_BIGINT(said, 'a')", f'{{"a": {fraction}}}') == "0"
    assert ask("JSON_EXTRACT_BIGINT(said, 'a')", f'{{"a": -{digits}}}') == "-9223372036854775808"
    assert ask("said::a :> DECIMAL(10,3)", f'{{"a": {fraction}}}') == "0.500"
    assert ask("said::a :> DECIMAL(10,3)", f'{{"a": -{digits}}}') == "-9999999.999"
    assert ask("said::a :> DECIMAL(10,3)", '{"a": 1e-999999999999}') == "0.000"
    assert ask("said::a :> DECIMAL(4,3)", '{"a": 9.9995}') == "9.999"
    assert ask("said::a = 0", f'{{"a": {fraction}}}') == "0"
    assert ask("JSON_TYPE(said::a)", f'{{"a": {digits}}}') == "DOUBLE"
    assert ask("said::%a > 1", f'{{"a": {digits}}}') == "1"


def test_no_pattern_of_a_record_makes_a_search_last(ask: Ask) -> None:
    document = json.dumps(["a" * 3000, "%a" * 40 + "%b"])
    assert ask("JSON_SEARCH(said, 'one', JSON_EXTRACT_STRING(said, 1))", document) == '"$[1]"'
    assert ask("JSON_SEARCH('[\"x%y\", \"xzy\"]', 'all', 'x|%y', '|')") == '"$[0]"'
    assert ask("JSON_SEARCH(said, 'all', '%')", '["x\\ny", ""]') == '["$[0]","$[1]"]'


def test_an_array_is_not_filled_without_end(ask: Ask) -> None:
    with pytest.raises(duckdb.InvalidInputException, match="at most 1000000 elements"):
        ask("JSON_SET_DOUBLE('[]', 999999999, 1)")


REFUSALS = [
    ("JSON_EXTRACT_STRING(doc, '$.a')", "name of one member", "'a', 'b', 0"),
    ("JSON_EXTRACT_BIGINT(doc, '$[0]')", "name of one member", "'a', 'b', 0"),
    ("JSON_EXTRACT(doc, 'a')", "no JSON path: a", "'$.member.other[0]'"),
    ("JSON_EXTRACT(doc, '$.a-b')", "no JSON path", "'$.\"a-b\"'"),
    ("JSON_EXTRACT(doc, '$[-1]')", "no JSON path", ""),
    ("JSON_EXTRACT(doc, '$**')", "ends in **", ""),
    ("doc->'a'", "no JSON path: a", ""),
    ("JSON_SET(doc, '$.*', 1)", "a * or a range", "one value"),
    ("JSON_SET(doc, '$.a')", "takes 3 or more arguments", ""),
    ("JSON_SET(doc, '$.a', 1, '$.b')", "one stands alone", ""),
    ("JSON_OBJECT('a')", "one stands alone", ""),
    ("JSON_REMOVE(doc, '$')", "cannot remove $", "write NULL"),
    ("JSON_ARRAY_INSERT(doc, '$.a', 1)", "does not end in a place", "'$.list[0]'"),
    ("JSON_KEYS(doc, said)", "must be written out", "'$.a'"),
    ("JSON_QUOTE(5)", "takes a text", "TO_JSON"),
    ("JSON_ARRAY_UNPACK('x')", "takes a vector", "JSON_ARRAY_PACK"),
    ("JSON_CONTAINS_PATH(doc, 'some', '$.a')", "neither 'one' nor 'all'", ""),
    ("doc::a < doc::b", "have no order", "value::%a"),
    ("JSON_AGG(doc)", "it is an aggregate", "JSON_BUILD_ARRAY"),
    ("BSON_EXTRACT_STRING(doc, 'a')", "there is no BSON type", "JSON_EXTRACT_STRING"),
    ("JSON_TABLE(doc)", "no rows", "UNNEST"),
    ("JSON_TABLE(doc, '$[*]' COLUMNS(a INT PATH '$.a'))", "JSON_TABLE is not translated", "UNNEST"),
]


@pytest.mark.parametrize(("expression", "what", "hint"), REFUSALS, ids=[one for one, _, _ in REFUSALS])
def test_what_cannot_mean_the_same_is_refused_with_what_works(expression: str, what: str, hint: str) -> None:
    with pytest.raises(Untranslated) as refused:
        compiled(expression, RESOLVE)
    assert what in refused.value.what
    assert hint in refused.value.hint
    assert refused.value.start is not None


def test_no_function_is_both_known_and_refused() -> None:
    assert not known().keys() & REFUSED.keys()


def test_what_the_refusals_name_instead_is_compiled() -> None:
    for expression in (
        "JSON_BUILD_ARRAY(a, b)",
        "JSON_OBJECT('a', a, 'b', b)",
        "JSON_EXTRACT_JSON(value, 0)",
        "JSON_MATCH_ANY_EXISTS(value, 'a', 'b')",
        "value::a::$b = 'x'",
        "JSON_BUILD_OBJECT('a', value::a)",
        "JSON_DELETE_KEY(value, 'a')",
        "JSON_MERGE_PRESERVE(a, b)",
        "CAST(a AS JSON) = CAST(b AS JSON)",
        "JSON_PRETTY(value)",
        "JSON_TYPE(value->'$.a') = 'INTEGER'",
        "JSON_ARRAY_CONTAINS_JSON(array, TO_JSON(value))",
        "CAST(JSON_VALUE(value, '$.a') AS SIGNED)",
        "COALESCE(JSON_VALUE(value, '$.a'), 0)",
    ):
        check(expression)


@pytest.mark.parametrize("said", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_are_refused_with_what_works(ask: Ask, said: str) -> None:
    document = f'{{"a": [1, {said}]}}'
    with pytest.raises(duckdb.InvalidInputException) as refused:
        ask("JSON_EXTRACT(said, '$.a')", document)
    assert f'{said} is not JSON; write null, or "{said}" in quotes' in str(refused.value)
    assert ask("said::a", document) is None
    assert ask("JSON_EXTRACT(said, '$.a')", document.replace(said, f'"{said}"')) == f'[1,"{said}"]'
