"""CSV by the rules of LOAD DATA: what is written by them is read as the same, and what is not is refused with a reason."""

from __future__ import annotations

import datetime
import shutil
from decimal import Decimal
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Payloads
from resources.decode.csv.decoder import CsvDecoder
from resources.decode.csv.native import native_csv
from resources.decode.csv.rows import Rules, lines
from resources.decode.json.native import GOOD, LOOK
from resources.decode.json.rows import Reject
from resources.duckdb_engine.arrow_types import schema
from tests.cases import each_case

COMMA = {"delimiter": ",", "quote": '"'}


def csv(**options: Any) -> Format:
    return Format(type="csv", **options)


def texts(count: int) -> Columns:
    return Columns.of({f"c{at}": "VARCHAR" for at in range(count)})


def decode(payloads: list[bytes], columns: Columns, *, compiled: bool = True, **options: Any) -> Decoded:
    decoder = CsvDecoder(csv(**options), columns)
    if not compiled:
        decoder._native = None
    decoded = decoder.decode(Payloads.of(payloads))
    decoded.table.validate(full=True)
    assert decoded.table.schema == schema(columns)
    assert decoded.rows == decoded.table.num_rows or not columns
    assert list(decoded.kept or []) == sorted(decoded.kept or [])
    assert not {at for at, _ in decoded.rejects} & set(decoded.kept if decoded.kept is not None else range(len(payloads)))
    return decoded


def rows(decoded: Decoded) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in decoded.table.to_pylist()]


# What a field is, one rule after the other: options, payload, fields of its lines.
RULES: list[tuple[dict[str, Any], bytes, list[list[str | None]]]] = [
    ({}, b"a\tb", [["a", "b"]]),
    ({}, b"a\tb\n", [["a", "b"]]),
    ({}, b"a\tb\nc\td", [["a", "b"], ["c", "d"]]),
    ({}, b"a\t", [["a", ""]]),
    ({}, b"\t\n", [["", ""]]),
    ({}, b"", []),
    ({}, b"a\\tb\t\\\\", [["a\tb", "\\"]]),
    ({}, b"\\n\\r\\b\\Z\\q\t\\'", [["\n\r\b\x1aq", "'"]]),
    ({}, b"a\\\tb\tc", [["a\tb", "c"]]),  # an escaped delimiter is none
    ({}, b"a\\\nb\tc", [["a\nb", "c"]]),  # nor is an escaped line end one
    ({}, b"\\N\tN", [[None, "N"]]),
    ({}, b"\\Nx\tx\\N", [["Nx", "xN"]]),
    ({}, b"NULL\t\\\\N", [["NULL", "\\N"]]),  # without a quote the word is a word
    ({}, b"a\r\tb\r\n", [["a\r", "b\r"]]),
    ({}, b"a\tb\\", [["a", "b\\"]]),  # the last sign of the record escapes nothing
    (COMMA, b'"a",b', [["a", "b"]]),
    (COMMA, b'"a,b","c\nd"\n', [["a,b", "c\nd"]]),
    (COMMA, b'"a""b","c\\"d"', [['a"b', 'c"d']]),
    (COMMA, b'a"b,c""d', [['a"b', 'c""d']]),  # a quote that does not begin the field is a sign like others
    (COMMA, b'"a"b",c', [['a"b', "c"]]),  # nor does one end it that nothing ends behind
    (COMMA, b' "a",b', [[' "a"', "b"]]),
    (COMMA, b'"",', [["", ""]]),
    (COMMA, b'NULL,"NULL"', [[None, "NULL"]]),
    (COMMA, b'\\N,"\\N"', [[None, None]]),
    (COMMA, b'"a",""', [["a", ""]]),
    ({**COMMA, "escape": '"'}, b'"a""b","c\\n"', [['a"b', "c\\n"]]),
    ({**COMMA, "escape": '"'}, b'a""b,c', [['a"b', "c"]]),
    ({**COMMA, "escape": ""}, b"a\\,\\N", [["a\\", "\\N"]]),
    ({**COMMA, "escape": "^"}, b"a^,b,^N", [["a,b", None]]),
    ({**COMMA, "null": ""}, b',""', [[None, ""]]),
    ({**COMMA, "null": "", "null_quoted": True}, b',""', [[None, None]]),
    ({**COMMA, "null": "NA"}, b"NA,NULL", [[None, "NULL"]]),
    ({**COMMA, "null": "NA"}, b'"NA",\\NA', [["NA", "NA"]]),
    ({"delimiter": "||", "line_end": "\r\n"}, b"a|b||c\r\nd||e\n\r\n", [["a|b", "c"], ["d", "e\n"]]),
    ({"delimiter": ";", "line_end": ";;"}, b"a;b;;c;d", [["a", "b"], ["c", "d"]]),
    ({"delimiter": "–", "quote": "«"}, "«a–b«–ü".encode(), [["a–b", "ü"]]),
    ({"line_start": "xx"}, b"no xxa\tb\nnone\nxxc\td", [["a", "b"], ["c", "d"]]),
    ({"line_start": ">"}, b"nothing\nhere\n", []),
    ({"skip_lines": 1}, b"x\ty\na\tb", [["a", "b"]]),
    ({"skip_lines": 1}, b"x\ty", []),
    ({"skip_lines": 2}, b"1\\\n2\n3\na\tb", [["a", "b"]]),  # an escaped line end ends no line
    ({**COMMA, "skip_lines": 1}, b'"x\ny",z\na,b', [['y"', "z"], ["a", "b"]]),  # quotes say nothing there
]


@each_case(("options", "payload", "fields"), RULES, ids=lambda value: repr(value)[:40])
def test_fields_are_those_of_the_rules(options: dict[str, Any], payload: bytes, fields: list[list[str | None]]) -> None:
    raw = lines(payload, Rules.of(csv(**options)), 2)
    assert [[None if field is None else field.decode() for field in line] for line in raw] == fields
    for compiled in (True, False):
        decoded = decode([payload] * 3, texts(2), compiled=compiled, **options)
        assert rows(decoded) == [tuple(line) for line in fields] * 3
        assert not decoded.rejects


@each_case(
    ("options", "payload", "reason"),
    [
        ({}, b"a", "line 1: expected 2 fields, found 1"),
        ({}, b"a\tb\tc", "line 1: expected 2 fields, found 3"),
        ({}, b"a\tb\n\n", "line 2: expected 2 fields, found 1"),
        ({"skip_lines": 1}, b"x\na\tb\nc", "line 3: expected 2 fields, found 1"),
        (COMMA, b'a,"b', "line 1: the quote at byte 2 is not closed"),
        (COMMA, b'a,b\nc,"d"e', "line 2: the quote at byte 6 is not closed"),
        (COMMA, b'"a" ,"b"', "line 1: expected 2 fields, found 1"),
    ],
)
def test_lines_that_are_not_what_is_wanted_say_so(options: dict[str, Any], payload: bytes, reason: str) -> None:
    decoded = decode([b"1\t2" if "delimiter" not in options else b"1,2", payload], texts(2), **{**options, "skip_lines": 0}) \
        if not options.get("skip_lines") else decode([b"x\n1\t2", payload], texts(2), **options)  # fmt: skip
    assert decoded.rejects == [(1, reason)]
    assert rows(decoded) == [("1", "2")]


sign = st.sampled_from(list("ab,;\"'\\\n\r\t N0x")) | st.characters(codec="utf-8")
options = st.fixed_dictionaries(
    {
        "delimiter": st.sampled_from([",", "\t", "||", ";", "é"]),
        "quote": st.sampled_from(["", '"', "'", "«"]),
        "escape": st.sampled_from(["\\", "", "^", '"']),
        "line_end": st.sampled_from(["\n", "\r\n", "<eol>"]),
        "line_start": st.sampled_from(["", "", ">>"]),
        "null": st.sampled_from([None, None, "", "NA", "null"]),
        "null_quoted": st.booleans(),
        "skip_lines": st.integers(0, 2),
    }
)
field = st.none() | st.text(sign, max_size=8) | st.sampled_from(["NULL", "N", "NA", "\\N", "", "null"])


def write(record: list[list[str | None]], how: dict[str, Any], ended: bool) -> bytes | None:
    """A record by the rules; None where these options cannot say it."""
    quote, escape, end = how["quote"], how["escape"], how["line_end"]
    out = []
    for line in record:
        fields = []
        for value in line:
            if value is None:
                if escape and escape != quote:
                    fields.append(escape + "N")
                elif how["null"] is not None:
                    fields.append(how["null"])
                elif quote:
                    fields.append("NULL")
                else:
                    return None
                continue
            special = {quote, escape, *how["delimiter"], *end, "\0", *(how["line_start"][:1])} - {""}
            if escape and escape != quote:
                text = "".join(escape + ("0" if char == "\0" else char) if char in special else char for char in value)
                if text == value and text and not quote and text == how["null"]:
                    text = escape + text if text[0] not in "ntrb0ZN" else None
                    if text is None:
                        return None
            elif quote:
                text = value.replace(quote, quote * 2)
            elif special & set(value) or value == how["null"]:
                return None
            else:
                text = value
            if quote:
                if how["null_quoted"] and value == how["null"]:
                    return None
                text = quote + text + quote
            elif escape and value == how["null"] and text == value:
                return None
            fields.append(text)
        out.append(how["line_start"] + how["delimiter"].join(fields))
    if not out:
        return None
    text = "".join("skipped" + end for _ in range(how["skip_lines"])) + end.join(out) + (end if ended else "")
    return text.encode()


@given(options, st.lists(st.lists(field, min_size=3, max_size=3), min_size=1, max_size=4), st.booleans())
@example({"delimiter": ",", "quote": "", "escape": "\\", "line_end": "\n", "line_start": "", "null": "", "null_quoted": False,
          "skip_lines": 0}, [[None, "a", None]], False)  # fmt: skip
def test_what_is_written_by_the_rules_is_read_as_the_same(
    how: dict[str, Any], record: list[list[str | None]], ended: bool
) -> None:
    payload = write(record, how, ended)
    if payload is None:
        return
    decoded = decode([payload], texts(3), **how)
    assert not decoded.rejects
    assert rows(decoded) == [tuple(line) for line in record]


@given(options, st.lists(st.binary(max_size=40) | st.text(sign, max_size=30).map(str.encode), max_size=8))
def test_whatever_a_payload_holds_a_block_decodes_as_its_payloads_do(how: dict[str, Any], payloads: list[bytes]) -> None:
    columns = Columns.of({"a": "VARCHAR", "b": "BIGINT"})
    whole = decode(payloads, columns, **how)
    kept = list(range(len(payloads))) if whole.kept is None else whole.kept
    single = CsvDecoder(csv(**how), columns)
    single._native = None  # line by line
    alone: list[Any] = []
    refused = []
    for at, payload in enumerate(payloads):
        try:
            lines(payload, Rules.of(csv(**how)), 2)
            split = True
        except Reject:
            split = False
        one = single.decode(Payloads.of([payload]))
        assert split or one.rejects
        alone += [(at, row) for row in rows(one)]
        refused += [(at, why) for _, why in one.rejects]
    assert list(zip(kept, rows(whole), strict=True)) == alone
    assert list(whole.rejects) == refused


@given(
    options,
    st.lists(st.text(st.sampled_from(list("ab,;\"'\\\n\r\tN^|>é«")), max_size=40).map(str.encode), min_size=1, max_size=6),
)
@settings(max_examples=2 * settings.default.max_examples)
def test_compiled_code_splits_as_the_exact_one_does(how: dict[str, Any], payloads: list[bytes]) -> None:
    rules, places = Rules.of(csv(**how)), [1, 0]
    native = native_csv(rules, 2, places)
    if native is None:
        assert not shutil.which("cc") or len(rules.quote) > 1, "the compiled part is not built -> make install"
        return
    fields, counts, status = native.split(Payloads.of(payloads))
    expected: list[list[bytes | None]] = []
    for payload, count, code in zip(payloads, counts, status, strict=True):
        try:
            found = lines(payload, rules, 2)
        except Reject:
            assert (code, count) == (LOOK, 0)
            continue
        assert (code, count) == (GOOD, len(found)), payload
        expected += found
    assert [list(row) for row in zip(*(fields[at].to_pylist() for at in places), strict=True)] == expected


TYPES = {
    "i": "BIGINT", "t": "TINYINT", "u": "UBIGINT", "h": "HUGEINT", "d": "DOUBLE", "f": "FLOAT", "b": "BOOLEAN",
    "m": "DECIMAL(10,2)", "day": "DATE", "at": "TIMESTAMP", "zone": "TIMESTAMPTZ", "o": "TIME", "id": "UUID", "j": "JSON",
    "raw": "BLOB", "s": "STRUCT(x BIGINT, y VARCHAR[])", "l": "INTEGER[]",
}  # fmt: skip
VALUES = (
    b"-7|7|18446744073709551615|-170141183460469231731687303715884105728|1e3|0.5|true|12.345|2026-11-20|2026-11-20 10:00:00+02|"
    b'2026-11-20T10:00:00.123456+02:00|10:00|6ba7b810-9dad-11d1-80b4-00c04fd430c8|{"k":[1]}|\xff\x00|{"x":1,"y":["a"]}|[1,2]'
)


def test_text_becomes_a_value_of_the_columns_type() -> None:
    columns = Columns.of(TYPES)
    decoded = decode([VALUES, b"|".join([b"\\N"] * len(TYPES))] * 20, columns, delimiter="|")
    assert not decoded.rejects
    first, second = decoded.table.slice(0, 2).to_pylist()
    assert first == {
        "i": -7, "t": 7, "u": 2**64 - 1, "h": str(-(2**127)), "d": 1000.0, "f": 0.5, "b": True, "m": Decimal("12.35"),
        "day": datetime.date(2026, 11, 20), "at": datetime.datetime(2026, 11, 20, 8),
        "zone": datetime.datetime(2026, 11, 20, 8, 0, 0, 123456, tzinfo=datetime.timezone.utc), "o": datetime.time(10),
        "id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "j": '{"k":[1]}', "raw": b"\xff\x00", "s": {"x": 1, "y": ["a"]},
        "l": [1, 2],
    }  # fmt: skip
    assert set(second.values()) == {None}


@each_case(
    ("kind", "text", "reason"),
    [
        ("BIGINT", b"1.5", 'v: "1.5" is not a BIGINT'),
        ("BIGINT", b"0x10", 'v: "0x10" is not a BIGINT'),
        ("BIGINT", b" 7", 'v: " 7" is not a BIGINT'),
        ("BIGINT", b"", 'v: "" is not a BIGINT (format.null sets the text of NULL)'),
        ("TINYINT", b"128", 'v: "128" is not a TINYINT'),
        ("UBIGINT", b"-1", 'v: "-1" is not a UBIGINT'),
        ("HUGEINT", b"1e5", 'v: "1e5" is not a HUGEINT'),
        ("FLOAT", b"1e300", 'v: "1e300" is not a FLOAT'),
        ("DOUBLE", b"one", 'v: "one" is not a DOUBLE'),
        ("BOOLEAN", b"2", 'v: "2" is not a BOOLEAN'),
        ("DATE", b"2026-11-20 10:00", 'v: "2026-11-20 10:00" is not a DATE'),
        ("TIMESTAMP", b"yesterday", 'v: "yesterday" is not a TIMESTAMP'),
        ("UUID", b"x", 'v: "x" is not a UUID'),
        ("JSON", b"{", 'v: "{" is not a JSON'),
        ("VARCHAR", b"ab\xff", "v: not UTF-8 at byte 2"),
        ("STRUCT(x BIGINT)", b'{"x":"many"}', 'v.x: "many" is not a BIGINT'),
        ("STRUCT(x BIGINT)", b'{"x":1},"v":{}', 'v: "{\\"x\\":1},\\"v\\":{}" is not a STRUCT(x BIGINT)'),
        ("BIGINT[]", b"1", "v: 1 is not a BIGINT[]"),
    ],
)
@each_case("count", [0, 20])
def test_text_that_is_no_value_of_the_type_is_a_reason_and_never_a_null(kind: str, text: bytes, reason: str, count: int) -> None:
    columns = Columns.of({"v": kind})
    decoded = decode([b"\\N"] * count + [text + b"\n"], columns)
    assert decoded.rejects == [(count, reason)]
    assert decoded.rows == count


def test_a_payload_with_a_bad_line_gives_no_row_at_all() -> None:
    columns = Columns.of({"a": "BIGINT", "b": "VARCHAR"})
    payloads = [b"1,x\n2,y\n3,z", b"4,x\nfive,y\n6,z", b"7,x\n8", b"", b"9,x\n10,y", b"eleven,x"]
    decoded = decode(payloads, columns, delimiter=",")
    assert rows(decoded) == [(1, "x"), (2, "y"), (3, "z"), (9, "x"), (10, "y")]
    assert decoded.kept == [0, 0, 0, 4, 4]
    assert decoded.rejects == [
        (1, 'line 2: a: "five" is not a BIGINT'),
        (2, "line 2: expected 2 fields, found 1"),
        (5, 'a: "eleven" is not a BIGINT'),
    ]


def test_fields_go_to_columns_by_name_and_variables_to_none() -> None:
    columns = Columns.of({"id": "BIGINT", "name": "VARCHAR", "more": "DOUBLE"})
    decoded = decode([b"x,Ada,7,late"], columns, delimiter=",", fields=["@skip", "NAME", "id", "new"])
    assert decoded.table.to_pylist() == [{"id": 7, "name": "Ada", "more": None}]
    assert decoded.new_columns.to_dict() == {"new": "VARCHAR"}
    assert decode([b"1,2"], Columns(), delimiter=",", fields=["a", "b"]).new_columns.to_dict() == {"a": "VARCHAR", "b": "VARCHAR"}


def test_every_payload_of_one_line_is_told_as_such() -> None:
    assert decode([b"1", b"2"], Columns.of({"a": "BIGINT"})).kept is None
    assert decode([b"1\n2", b""], Columns.of({"a": "BIGINT"})).kept == [0, 0]
