"""Schemas and payloads that are small and would cost without end: they are refused, or read in steps that their size bounds.

Each of these ran for minutes or filled the memory once. Where a defect comes back the test does not end: a process of its own is
ended after a minute of its processor time, however busy the machine is.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
from collections.abc import Callable
from typing import Any

import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.avro import decoder as avro_format
from resources.decode.avro.decoder import AvroDecoder
from resources.decode.avro.schema_plan import plan
from resources.decode.avro.schema_resolution import Resolution
from resources.decode.block import Payloads
from resources.decode.debezium.avro_documents import AvroMessages
from resources.decode.debezium.envelopes import ENVELOPES
from resources.decode.factory import decoder
from resources.decode.json.rows import Reject, load
from resources.decode.json_schema.schema import JsonSchema
from resources.decode.payload_schemas import Unfit
from resources.decode.resource_limits import Deadlined
from resources.schema_registry.client import Schema
from tests.cases import each_case
from tests.processes import forked

CPU_S = 60


def bounded(work: Callable[[], object]) -> Any:
    """What it returns, or the text of its refusal; it has a minute of processor time."""
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)

    def inside() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        try:
            theirs.send(work())
        except (Unfit, Reject) as error:
            theirs.send(f"refused: {error}")

    process = forked(inside)
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        process.join()
        raise AssertionError(f"no end within {CPU_S} s of processor time (exit {process.exitcode})") from None
    finally:
        process.join()


def doubling(leaf: Any, levels: int = 55) -> dict[str, Any]:
    """Records that contain the next one twice: 2 ** levels leaves."""
    inner, again = leaf, leaf if isinstance(leaf, str) else leaf["name"]
    for at in range(levels):
        inner = {
            "type": "record",
            "name": f"R{at}",
            "fields": [{"name": "a", "type": inner}, {"name": "b", "type": f"R{at - 1}" if at else again}],
        }
    return {"type": "record", "name": "Root", "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": inner}]}


@each_case("leaf", ["null", {"type": "record", "name": "E", "fields": []}, {"type": "fixed", "name": "F", "size": 0}])
def test_nested_records_without_bytes_are_refused(leaf: Any) -> None:
    found = bounded(lambda: plan(json.dumps(doubling(leaf))))
    assert "parts of zero bytes" in found or "columns and members" in found, found


def test_nested_records_without_bytes_in_a_union_or_an_array_are_refused() -> None:
    inside = doubling("null")
    for kind in ({"type": "map", "values": inside}, ["string", "long", inside], ["null", inside]):
        schema = {"type": "record", "name": "Top", "fields": [{"name": "m", "type": kind}, {"name": "n", "type": "long"}]}
        assert "parts of zero bytes" in bounded(lambda schema=schema: plan(json.dumps(schema)))  # type: ignore[misc]


def test_an_array_of_nested_records_without_columns_is_looked_at_once_for_each_part() -> None:
    """Whether an item has a byte was asked of every path through the records."""
    schema = {
        "type": "record",
        "name": "Top",
        "fields": [{"name": "a", "type": {"type": "array", "items": doubling("null", 50)}}],
    }
    assert "refused" in bounded(lambda: plan(json.dumps(schema)))


def test_a_few_parts_without_bytes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = doubling("null", 6)
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(avro_format, "native_avro", lambda _: None)
        found = AvroDecoder(Format(type="avro", schema=json.dumps(schema)), Columns.of({"id": "BIGINT"})).decode(
            Payloads.of([b"\x02"])
        )
        assert found.table.to_pydict() == {"id": [1]}


def shared(levels: int, leaf: str) -> dict[str, Any]:
    """A map of records that contain the next one twice, each with a byte: one column."""
    inside = doubling(leaf, levels)
    inside["name"] = "In"
    return {
        "type": "record",
        "name": "Top",
        "fields": [{"name": "m", "type": {"type": "map", "values": inside["fields"][1]["type"]}}],
    }


def test_parts_that_are_json_are_compared_once_for_each_pair() -> None:
    levels = 12  # a record may make 20,000 members at most: 2 ** 13 here, compared 2 ** 13 times at each of many depths before
    one, two = plan(json.dumps(shared(levels, "long"))), plan(json.dumps(shared(levels, "long")))
    assert str(bounded(lambda: Resolution(one, two).columns.names())) == "('m',)"
    other = plan(json.dumps(shared(levels, "int")))
    assert "is a map" in bounded(lambda: Resolution(one, other))


def test_parts_inside_of_themselves_are_compared_to_the_end() -> None:
    """A difference behind a circle is found, and what is the same is read."""

    def tree(leaf: str) -> str:
        node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}, {"name": "v", "type": leaf}]}
        fields = [{"name": "m", "type": {"type": "map", "values": node}}, {"name": "n", "type": {"type": "map", "values": "N"}}]
        return json.dumps({"type": "record", "name": "Top", "fields": fields})

    assert Resolution(plan(tree("long")), plan(tree("long"))).columns.names() == ("m", "n")
    with pytest.raises(Unfit, match="m is a map"):
        Resolution(plan(tree("long")), plan(tree("string")))


def doubling_maps(levels: int) -> Any:
    """Records with two maps of the next one."""
    inner: Any = "long"
    for at in range(levels):
        again = f"R{at - 1}" if at else "long"
        fields = [
            {"name": "a", "type": {"type": "map", "values": inner}},
            {"name": "b", "type": {"type": "map", "values": again}},
        ]
        inner = {"type": "record", "name": f"R{at}", "fields": fields}
    return inner


@each_case("row", [doubling("long", 28), doubling_maps(28)])
def test_change_events_whose_schema_doubles_at_each_level_are_refused(row: Any) -> None:
    schema = {"type": "record", "name": "E", "fields": [{"name": "after", "type": row}, {"name": "op", "type": "string"}]}
    found = bounded(lambda: AvroMessages(Schema("AVRO", json.dumps(schema)), ENVELOPES["debezium"].plans))
    assert "more than 20,000 columns and members" in found


@each_case("digits", [4_301, 10**7, 10**30])
def test_decimals_of_endless_precision_are_refused(digits: int) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 2}
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    assert bounded(lambda: plan(json.dumps(schema))) == "refused: the schema has a decimal of more than 4,300 digits"


def test_a_decimal_of_many_digits_is_exact() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4_000, "scale": 2}
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})
    value = 10**3_999 + 7
    raw = value.to_bytes(1_700, "big")
    payload = bytes([0xC8, 0x1A]) + raw  # a length of 1,700
    found = AvroDecoder(Format(type="avro", schema=schema), plan(schema).columns).decode(Payloads.of([payload]))
    assert found.table.column("x").to_pylist() == [f"{str(value)[:-2]}.{str(value)[-2:]}"]


def test_a_member_given_twice_is_found_in_one_pass() -> None:
    """Each of 100,000 names was looked for among all others."""
    members = ",".join(f'"m{at}":1' for at in range(100_000))
    text = f'{{{members},"m99999":2}}'.encode()
    assert bounded(lambda: load(text)) == "refused: duplicate member m99999"


def json_schema(schema: Any, *references: tuple[str, Any]) -> JsonSchema:
    texts = tuple((name, json.dumps(content)) for name, content in references)
    return JsonSchema(Schema("JSON", json.dumps(schema), texts))


def doubling_refs(levels: int, word: str = "allOf", where: str = "#/$defs/") -> dict[str, Any]:
    """Definitions that apply the next one to the same value twice."""
    found: dict[str, Any] = {f"a{at}": {word: [{"$ref": f"{where}a{at + 1}"}] * 2} for at in range(levels)}
    return {**found, f"a{levels}": {"type": "object"}}


@each_case("word", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_doubles_its_work_at_each_reference_validates_nothing(word: str) -> None:
    schema = json_schema({"$ref": "#/$defs/a0", "$defs": doubling_refs(40, word)})
    assert "could take more than" in bounded(lambda: schema.reason({"x": 1}, 8))
    few = json_schema({"$ref": "#/$defs/a0", "$defs": doubling_refs(3, word)})
    assert few.reason({"x": 1}, 8) is None or word == "oneOf"


def test_so_does_one_of_several_documents() -> None:
    schema = json_schema({"$ref": "other.json#/$defs/a0"}, ("other.json", {"$defs": doubling_refs(40)}))
    assert "could take more than" in bounded(lambda: schema.reason({"x": 1}, 8))


def test_a_schema_that_doubles_its_work_at_each_level_validates_what_is_flat() -> None:
    """Each level of the value is evaluated twice as often as the one above."""
    for member in ({"items": {"$ref": "#/$defs/n"}}, {"properties": {"x": {"$ref": "#/$defs/n"}}}):
        schema = json_schema({"$ref": "#/$defs/n", "$defs": {"n": {"allOf": [member, dict(member)]}}})
        value: Any = {}
        for _ in range(150):
            value = [value] if "items" in member else {"x": value}
        text = json.dumps(value)
        assert "could take more than" in bounded(lambda: schema.reason(value, len(text)))  # noqa: B023
        assert schema.reason({"x": [[1]]}, 20) is None


def test_references_in_a_circle_are_refused() -> None:
    with pytest.raises(Unfit, match="refers to itself"):
        json_schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}})


def test_ordinary_schemas_are_far_from_the_bound() -> None:
    """A tree, and an expression with five kinds of nodes, each with two sides: recursive, as schemas of users are."""
    tree = {"type": "object", "properties": {"v": {"type": "integer"}, "left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    kinds = [
        {"properties": {"op": {"const": name}, "left": {"$ref": "#/$defs/e"}, "right": {"$ref": "#/$defs/e"}}, "required": ["op"]}
        for name in ("add", "sub", "mul", "div", "lit")
    ]
    expression = {"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": kinds}}}
    deep: Any = {"v": 0}
    for at in range(100):
        deep = {"v": at, "left": deep, "right": {"v": at}}
    assert json_schema(tree).reason(deep, len(json.dumps(deep))) is None
    formula: Any = {"op": "lit"}
    for name in ("add", "sub", "mul", "div"):
        formula = {"op": name, "left": formula, "right": formula}
    assert json_schema(expression).reason(formula, len(json.dumps(formula))) is None


WIDE = Columns.of({"id": "BIGINT", "items": f"STRUCT({', '.join(f'm{at} INTEGER' for at in range(1_000))})[]"})
NOT_COMPILED = Columns.of({"id": "BIGINT", "items": f"STRUCT(day DATE, {', '.join(f'm{at} INTEGER' for at in range(1_000))})[]"})


@each_case("columns", [WIDE, NOT_COMPILED], ids=["compiled", "plain"])
def test_lists_of_objects_without_members_do_not_fill_the_memory(columns: Columns) -> None:
    """Three bytes, `{},`, take a place in each of 1,000 columns: 30 kB would be 100 MB."""
    reads = Deadlined(decoder(Format(), columns))
    hostile = b'{"id": 2, "items": [' + b",".join([b"{}"] * 10_000) + b"]}"
    payloads = [b'{"id": 1, "items": [{"m1": 7}]}', hostile, b'{"id": 3, "items": []}']

    def peak_kb() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def work() -> tuple[list[Any], list[Any], int]:
        before = peak_kb()  # what the tests before have left in the process that was forked
        found = reads.decode(Payloads.of(payloads))
        return found.table.column("id").to_pylist(), list(found.rejects), peak_kb() - before

    ids, rejects, grown_kb = bounded(work)
    assert ids == [1, 3] and [at for at, _ in rejects] == [1], rejects
    assert "too large" in rejects[0][1], rejects
    assert grown_kb < 500_000
