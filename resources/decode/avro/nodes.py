"""The steps by which an Avro datum is read, as resources/native/avro.c executes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Context
from typing import Any

import pyarrow as pa

from kpipe.definition.json_path import write_path
from kpipe.schema.columns import Columns, Type
from resources.decode.payload_schemas import Unfit

__all__ = ["EXACT", "WHOLE", "WITHIN", "Node", "Plan"]

WHOLE = "kpipe.whole"
"""Name of the record around a schema that is not a record."""

#: Computes decimals of any schema: the default context has 28 digits.
EXACT = Context(prec=100_000)

# The steps; resources/native/avro.c has the same numbers.
(NOTHING, FLAG, INT, LONG, FLOAT, REAL, BYTES, STRING, FIXED, ENUM, RECORD, ARRAY, MAP, OPTIONAL, UNION, SPAN, SCALED, DECIMAL,
 UUID) = range(19)  # fmt: skip

TIME_OF_DAY, MOMENT, DAY = 1, 2, 3
_PLAIN = {
    FLAG: "boolean", INT: "int", LONG: "long", FLOAT: "float", REAL: "double", BYTES: "bytes", STRING: "string", ARRAY: "array",
    MAP: "map", DECIMAL: "bytes",
}  # fmt: skip
#: What a number may be, in microseconds and days. Moments and days: the years 1 to 9999, which every destination has.
WITHIN = {
    0: (-(2**63), 2**63 - 1), TIME_OF_DAY: (0, 86_399_999_999), MOMENT: (-62_135_596_800_000_000, 253_402_300_799_999_999),
    DAY: (-719_162, 2_932_896),
}  # fmt: skip


@dataclass
class Node:
    """A step.

    Attributes:
        op: number of the step.
        kind: type of its column; None if it has no column.
        a: FIXED: size; OPTIONAL: index of null; SCALED: 1 for an int; DECIMAL: size, -1 for its own.
        b: DECIMAL: precision; INT, LONG, SCALED: which of `WITHIN`.
        inner: nodes of the parts: fields, items, branches.
        places: RECORD: for each field the index of its member in the struct; -1 without a member.
        names: RECORD: names of fields; ENUM: symbols.
        scale: DECIMAL.
        label: the schema's name for the type, for errors.
        given: RECORD: the definitions of its fields; ENUM: its own definition.
        full: full name of a named type.
    """

    op: int
    kind: Type | None = None
    a: int = 0
    b: int = 0
    inner: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    scale: int = 0
    label: str = ""
    given: list[dict[str, Any]] = field(default_factory=list)
    full: str = ""

    @property
    def branch(self) -> str:
        """Name of its type as a branch of a union."""
        if self.op == SCALED:
            return "int" if self.a else "long"
        return self.full or _PLAIN.get(self.op, "")


@dataclass
class Plan:
    """The steps that read data of one schema.

    Attributes:
        nodes: the steps; the first is the record.
        columns: the columns of a table with this schema.
        carried: Arrow type of each column before conversion; JSON is carried as bytes.
    """

    nodes: list[Node]
    columns: Columns
    carried: pa.StructType

    def without_branches(self, parts: Sequence[str | int]) -> tuple[tuple[str | int, ...], bool]:
        """Return a path without the names of branches of unions with null (`payload::string`), and whether it had one.

        Source of the form: SingleStore's page "Extracting and Converting Avro Values".

        Raises:
            Unfit: it names a branch of a union of several types, whose JSON does not contain the branch.
        """
        at, kept, named = 0, list[str | int](), False
        for place, part in enumerate(parts):
            node = self.nodes[at]
            whole = self.nodes[node.inner[0]] if node.full == WHOLE and part not in node.names else node
            if part in self._branches(whole):
                raise Unfit(
                    f"the path {write_path(parts)} names {part}, a branch of a union of several types: "
                    f"map {write_path(kept)} itself, which is the value as JSON"
                )
            if node.op == OPTIONAL:
                at = node.inner[0]
                node = self.nodes[at]
                inside = node.names if node.op == RECORD else []
                if part == node.branch and part not in inside:
                    named = True
                    continue
            if node.op != RECORD or part not in node.names:
                kept += parts[place:]
                break
            kept.append(part)
            at = node.inner[node.names.index(str(part))]
        return tuple(kept), named

    def _branches(self, node: Node) -> list[str]:
        """Names of the branches of a union of several types, without those that a member of a branch has, too."""
        union = self.nodes[node.inner[0]] if node.op == SPAN else node
        if union.op != UNION:
            return []
        inner = [self.nodes[at] for at in union.inner]
        inner = [self.nodes[item.inner[0]] if item.op == SPAN else item for item in inner]
        members = {name for item in inner if item.op == RECORD for name in item.names}
        return [item.branch for item in inner if item.branch and item.branch not in members]
