"""Functions that are rejected by name, each with the reason and an alternative."""

from __future__ import annotations

from kpipe.expressions.mysql.refused.documents import DOCUMENTS
from kpipe.expressions.mysql.refused.texts import TEXTS
from kpipe.expressions.mysql.refused.times import TIMES

__all__ = ["REFUSED"]

_MANY_ROWS = "it needs many rows, but an expression sees one record", "aggregate in a query on the table, or in a view"
_NEIGHBOURS = "it needs the rows around a row, but an expression sees one record", "use it in a query on the table"
_SESSION = "it reads the state of a database session, and kpipe has none", "write the value as a literal"
_WAITS = "an expression cannot wait or take locks", "remove it"
_VECTORS = "kpipe has no vector type", "compute it in a query on the table, or in a program (WITH TRANSFORM)"
_SHAPES = "kpipe has no geometry type", "load the text or the numbers, and compute it in a query on the table"
_SECRETS = "expressions do not support encryption", "use a program (WITH TRANSFORM)"
_XML = "expressions do not support XML", "parse it in a program (WITH TRANSFORM)"

_GROUPS: dict[tuple[str, str], str] = {
    _MANY_ROWS: """ANY_VALUE APPROX_COUNT_DISTINCT APPROX_PERCENTILE AVG BIT_AND BIT_OR BIT_XOR COUNT FIRST GROUP_CONCAT GROUPING
        LAST MAX MEDIAN MIN PERCENTILE_CONT PERCENTILE_DISC STD STDDEV STDDEV_POP
        STDDEV_SAMP SUM VAR_POP VAR_SAMP VARIANCE""",
    _NEIGHBOURS: "CUME_DIST DENSE_RANK FIRST_VALUE LAG LAST_VALUE LEAD NTH_VALUE NTILE PERCENT_RANK RANK ROW_NUMBER",
    _SESSION: """BENCHMARK CHARSET COERCIBILITY COLLATION CONNECTION_ID CURRENT_ROLE CURRENT_USER DATABASE DEFAULT FOUND_ROWS
        LAST_INSERT_ID NAME_CONST ROW_COUNT SCHEMA SECRET SESSION_USER SYSTEM_USER USER VERSION""",
    _WAITS: "GET_LOCK IS_FREE_LOCK IS_USED_LOCK MASTER_POS_WAIT RELEASE_ALL_LOCKS RELEASE_LOCK SLEEP SOURCE_POS_WAIT",
    _VECTORS: """DOT_PRODUCT EUCLIDEAN_DISTANCE SCALAR_VECTOR_MUL VECTOR_ADD VECTOR_ELEMENTS_SUM
        VECTOR_KTH_ELEMENT VECTOR_MUL VECTOR_NUM_ELEMENTS VECTOR_SORT VECTOR_SUB VECTOR_SUBVECTOR VECTOR_SUM""",
    _SHAPES: """GEOGRAPHY_AREA GEOGRAPHY_CONTAINS GEOGRAPHY_DISTANCE GEOGRAPHY_INTERSECTS GEOGRAPHY_LATITUDE GEOGRAPHY_LENGTH
        GEOGRAPHY_LONGITUDE GEOGRAPHY_POINT GEOGRAPHY_WITHIN_DISTANCE GEOMETRY_AREA GEOMETRY_CONTAINS GEOMETRY_DISTANCE
        APPROX_GEOGRAPHY_INTERSECTS
        GEOMETRY_POINT POINT ST_ASTEXT ST_DISTANCE ST_DISTANCE_SPHERE ST_GEOMFROMTEXT ST_POINTFROMTEXT ST_X ST_Y""",
    _SECRETS: "AES_DECRYPT AES_ENCRYPT ENCODE ENCRYPT DES_DECRYPT DES_ENCRYPT OLD_PASSWORD PASSWORD RANDOM_BYTES",
    _XML: "EXTRACTVALUE UPDATEXML",
}

REFUSED: dict[str, tuple[str, str]] = {
    **{name: why for why, names in _GROUPS.items() for name in names.split()},
    **TEXTS,
    **TIMES,
    **DOCUMENTS,
    "PIPELINE_BATCH_ID": ("a task does not have it", "query kpipe_batches, which lists the batch of each offset range"),
    "PIPELINE_SOURCE_FILE": ("records come from a topic", "write GET_KAFKA_PIPELINE_PROP('prop_topicname') for the topic"),
    "ISNUMERIC": (
        "it accepts currency signs and commas by rules that depend on the server",
        "write value REGEXP '^[-+]?[0-9]+([.][0-9]+)?$'",
    ),
    "CBRT": ("it is not a function of MySQL or SingleStore", "write SIGN(value) * POW(ABS(value), 1 / 3)"),
    "SINH": ("it is not a function of MySQL or SingleStore", "write (EXP(value) - EXP(-value)) / 2"),
    "COSH": ("it is not a function of MySQL or SingleStore", "write (EXP(value) + EXP(-value)) / 2"),
    "TANH": ("it is not a function of MySQL or SingleStore", "write 1 - 2 / (EXP(2 * value) + 1)"),
    "RANDOM": ("it is not a function of MySQL or SingleStore", "write RAND()"),
    "SQUARE": ("it is not a function of MySQL or SingleStore", "write value * value"),
    "EVEN": ("it is not a function of MySQL or SingleStore", "write 2 * CEIL(value / 2)"),
    "XOR": ("XOR is an operator", "write a XOR b, or a ^ b for bits"),
    "UUID_SHORT": ("it is unique on one server only, but tasks run on many", "write UUID()"),
}
