"""Define the grammar of the statements: SingleStore's, with a few additional clauses.

Unsupported clauses are included, so that errors can name them. A keyword is reserved only where no name is allowed: a table may
be called `key`, a column `format`. Keywords match in any letter case; every upper-case word without a terminal becomes one.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lark import Lark

from kpipe.sql.first_keywords import GAP

__all__ = ["FIRST_WORDS", "GRAMMAR", "KEYWORDS", "parser"]

_RULES = r"""
start: statement _SEMICOLON?

?statement: create | alter | drop | start_one | start_many | stop_one | stop_all | detach | test | show_pipelines
          | show_create | extract | infer | infer_table | clear | backfill | replay | create_inferred | profile | show_profile
          | truncate | delete | reset

create: "CREATE" or_replace? (AGGREGATOR | SOURCE)? "PIPELINE" if_not_exists? name "AS" "LOAD" "DATA" _source \
        _source_clause* _into _row_clause* (_shaping _target_clause*)? also*
or_replace: "OR" "REPLACE"
if_not_exists: "IF" "NOT" "EXISTS"
if_exists: "IF" "EXISTS"

alter: "ALTER" "PIPELINE" name _change+
drop: "DROP" "PIPELINE" if_exists? name
start_one: "START" "PIPELINE" if_not_running? name foreground?
start_many: "START" (ALL | FAILED) "PIPELINES"? if_not_running?
if_not_running: "IF" "NOT" "RUNNING"
foreground: "FOREGROUND" ("LIMIT" INT "BATCHES")?
stop_one: "STOP" "PIPELINE" if_running? name (CANCEL | DETACH)?
stop_all: "STOP" "ALL" "PIPELINES"? CANCEL?
if_running: "IF" "RUNNING"
detach: "DETACH" "PIPELINE" if_exists? name
test: "TEST" "PIPELINE" name ("LIMIT" INT)?
show_pipelines: "SHOW" "PIPELINES"
show_create: "SHOW" "CREATE" "PIPELINE" name EXTENDED?
extract: "EXTRACT" "PIPELINE" name ("FROM" partition ("OFFSETS" INT "TO" INT)?)? "INTO" "OUTFILE" string
infer: "INFER" "PIPELINE" "AS" "LOAD" "DATA" _source _source_clause* (_into _row_clause* | _format_clause*) also*
infer_table: "INFER" TABLE_ALONE "AS" "LOAD" "DATA" _source _source_clause* _into? _format_clause*
clear: "CLEAR" "PIPELINE"? "ERRORS" ("FOR" name)?
backfill: "BACKFILL" "PIPELINE" name ("PARTITION" partition)? range?
replay: "REPLAY" "PIPELINE" name
truncate: "TRUNCATE" "TABLE"? qualified
delete: "DELETE" "FROM" qualified where?
reset: "RESET" "PIPELINE" name ("," name)*
range: "FROM" INT "TO" INT
create_inferred: "CREATE" INFERRED "PIPELINE" name "AS" "LOAD" "DATA" _source _source_clause* _into? _format_clause*
profile: PROFILE "PIPELINE" name ("LIMIT" INT)?
show_profile: "SHOW" PROFILE (JSON | UI)? "PIPELINE" name ("ON" "NODE" INT)?

_source: kafka | files | http | source_table | link | other_source
kafka: KAFKA string
files: FILES string
http: HTTP string
source_table: TABLE qualified place ("ORDER" "BY" name)?
link: LINK qualified string
other_source: (S3 | FS | AZURE | HDFS | GCS | MONGODB | MYSQL | ICEBERG | KAFKACONNECT) string

_source_clause: config | credentials | batch_limit | retry_options | resource_pool | ordering | collecting | stop_on_error
              | with_transform | replace | ignore | skip_errors | errors_handle | max_errors | topics | topic_pattern \
              | beginning | lookup | options

config: "CONFIG" string
credentials: "CREDENTIALS" string
batch_limit: (BATCH_INTERVAL | MAX_PARTITIONS_PER_BATCH | MAX_OFFSETS_PER_BATCH_PARTITION \
           | MAX_BYTES_PER_BATCH_PARTITION | MAX_RETRIES_PER_BATCH_PARTITION) INT
retry_options: RETRY_OPTIONS string
resource_pool: RESOURCE "POOL" name
ordering: (ENABLE | DISABLE) "OUT_OF_ORDER" "OPTIMIZATION"
collecting: (ENABLE | DISABLE) "OFFSETS" "METADATA" "GC"
stop_on_error: STOP_ON_ERROR (ON | OFF)
with_transform: "WITH" transform
transform: TRANSFORM "(" string ("," string)* ")" (stdin | mode)*
stdin: "STDIN" (LINES | LENGTH_PREFIXED | JSON | ARROW)
mode: "MODE" (MAP | FILTER | FLATMAP)
replace: REPLACE
ignore: IGNORE ((ALL | CONSTRAINT | DUPLICATE "KEY" | PARSER) "ERRORS")?
skip_errors: "SKIP" (ALL | CONSTRAINT | DUPLICATE "KEY" | PARSER) "ERRORS"
errors_handle: ERRORS_HANDLE "HANDLE" string
max_errors: MAX_ERRORS INT
topics: TOPICS "(" string ("," string)* ")"
topic_pattern: TOPIC "PATTERN" string
beginning: OFFSETS moment end?
end: "TO" moment
lookup: LOOKUP name key "FROM" (TABLE name | (QUERY | URL)? string) settings?
settings: SETTINGS string
options: OPTIONS string

moment: EARLIEST | LATEST | TIMESTAMP string | string

_into: into_table | into_kafka | into_procedure
into_table: "INTO" "TABLE" qualified key? place?
into_kafka: "INTO" KAFKA string key?
into_procedure: "INTO" PROCEDURE qualified
key: "KEY" "(" name ("," name)* ")"
place: "IN" name string?

also: ALSO "INTO" "TABLE" qualified key? settings? _also_clause*
_also_clause: set_columns | where | on_duplicate

_row_clause: _format_clause | _source_clause
_shaping: set_columns | where | on_duplicate
_target_clause: _format_clause | _shaping
_format_clause: format | schema | registry | descriptors | message | validate | fields | lines | skip_lines | null_text \
              | character_set | columns | key_columns

format: FORMAT (JSON | CSV | AVRO | PROTOBUF | RAW | DEBEZIUM | PARQUET) kafka_key?
kafka_key: "KAFKA" "KEY"
key_columns: "KAFKA" "KEY" columns
schema: SCHEMA string
registry: SCHEMA "REGISTRY" string
descriptors: DESCRIPTORS string
message: MESSAGE string
validate: VALIDATE
fields: FIELDS (terminated | enclosed | escaped)+
lines: LINES_BY (terminated | starting)+
terminated: "TERMINATED" "BY" string
enclosed: "OPTIONALLY"? "ENCLOSED" "BY" string
escaped: "ESCAPED" "BY" string
starting: "STARTING" "BY" string
skip_lines: IGNORE_LINES INT ("LINES" | "ROWS")
null_text: NULL_TEXT "DEFINED" "BY" string optionally_enclosed?
optionally_enclosed: "OPTIONALLY" "ENCLOSED"
character_set: CHARACTER "SET" (name | string)

columns: _OPEN column ("," column)* ")"
column: target ("<-" path default?)?
target: qualified | VARIABLE
path: (PERCENT | (PERCENT "::")? member ("::" member)*)
member: NAME | BACKTICKED | INT
default: "DEFAULT" (string | NUMBER | NULL | TRUE | FALSE)

set_columns: SET assignment ("," assignment)*
assignment: target "=" expression
where: WHERE expression
on_duplicate: ON_DUPLICATE "KEY" "UPDATE" (EVERY | assignment ("," assignment)*)

_change: "SET" _setting (","? _setting)* | stop_on_error_or_none | reload | drop_partition | drop_orphans | drop_file | ordering
       | collecting | fields | lines
_setting: set_offsets | transform | config | credentials | one_config | one_credential | batch_limit | retry_options
        | one_retry | resource_pool | stop_on_error_or_none | offset_cursor | snapshots | other_link
set_offsets: OFFSETS moment REREAD?
one_config: "CONFIG" "::" setting_name "=" string
one_credential: "CREDENTIALS" "::" setting_name "=" string
one_retry: RETRY_OPTIONS "::" setting_name "=" string
offset_cursor: (OFFSET | OFFSETS) CURSOR (name | string)?
snapshots: BATCH_MATCHES_SNAPSHOT (ON | OFF | NONE)
other_link: LINK name
setting_name: string | BACKTICKED | NAME ("." NAME)*
stop_on_error_or_none: STOP_ON_ERROR (ON | OFF | NONE)
reload: RELOAD (TRANSFORM | LOOKUPS)
drop_partition: "DROP" "PARTITION" partition REREAD?
drop_orphans: "DROP" "ORPHAN" "PARTITIONS"
drop_file: "DROP" (FILE string | "ORPHAN" FILES)
partition: string | INT

expression: _item+
_item: TEXT | QUOTED | BACKTICKED | VARIABLE | NAME | NUMBER | PERCENT | OPERATOR
     | "(" _inner* ")" | "[" _inner* "]" | "{" _inner* "}"
_inner: _item | ","

name: NAME | BACKTICKED
qualified: name ("." name)?
string: STRING
"""

# Keywords that end an expression, depending on the text after them, and all terminals that are not keywords.
_TERMINALS = r"""
ON_DUPLICATE.3: /ON(?=GAP+DUPLICATE\b)GAP+DUPLICATE\b/i
ALSO.3: /ALSO(?=GAP+INTO\b)/i
ERRORS_HANDLE.3: /ERRORS(?=GAP+HANDLE\b)/i
TABLE_ALONE.3: /TABLE(?=GAP+AS\b)/i
FORMAT.3: /FORMAT\b(?!GAP*\()/i
FIELDS.3: /(FIELDS|COLUMNS)(?=GAP+(\w+GAP+)?\w+GAP+BY\b)/i
LINES_BY.3: /LINES(?=GAP+\w+GAP+BY\b)/i
IGNORE_LINES.3: /IGNORE(?=GAP+\d)/i
NULL_TEXT.3: /NULL(?=GAP+DEFINED\b)/i
CHARACTER.3: /CHARACTER(?=GAP+SET\b)/i

NAME: /[^\W\d][\w$]*|\$[\w$]+/i
BACKTICKED: /`(?:[^`]|``)+`/
VARIABLE: /@[A-Za-z_][A-Za-z0-9_]*/
STRING: /'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"/s
TEXT.2: /'(?:[^'\\]|\\.|'')*'/s
QUOTED: /"(?:[^"\\]|\\.|"")*"/s
INT: /\d+\b/
NUMBER: /-?\d+(\.\d+)?([eE][-+]?\d+)?|-?\.\d+([eE][-+]?\d+)?/
PERCENT: "%"
EVERY: "*"
OPERATOR: /[-+*\/<>=!|&^~.:?@\\]/
_OPEN: "("
_SEMICOLON: ";"
_SPACE: /GAP+/
%ignore _SPACE
"""


def _grammar() -> str:
    rules = re.sub(r"\\\n\s*", "", _RULES)
    rules = re.sub(r'"([A-Z_]+)"', r'"\1"i', rules)
    defined = set(re.findall(r"^([A-Z_0-9]+)(?:\.\d)?:", _TERMINALS, re.MULTILINE))
    words = sorted(set(re.findall(r'(?<!["\w])[A-Z][A-Z0-9_]+\b', rules)) - defined)
    return "\n".join([rules, *(f'{word}: "{word}"i' for word in words), _TERMINALS.replace("GAP", GAP)])


GRAMMAR = _grammar()
#: All keywords, also those that only the text after them makes one.
KEYWORDS = frozenset(
    [*re.findall(r'"([A-Z][A-Z_0-9]*)"i', GRAMMAR), *"|".join(re.findall(r"^\w+\.3: /\(?([A-Z|]+)", _TERMINALS, re.M)).split("|")]
)


_CHOICE = re.compile(r"^\?statement: (?P<names>.*(?:\n +\|.*)*)", re.MULTILINE)


def _by_first_word() -> dict[str, list[str]]:
    """Return the rules of statements by their first keyword."""
    first = dict(re.findall(r'^(\w+): "?([A-Z]+)"?', GRAMMAR, re.MULTILINE))
    choice = _CHOICE.search(GRAMMAR)
    assert choice is not None
    found: dict[str, list[str]] = {}
    for name in re.findall(r"\w+", choice["names"]):
        found.setdefault(first[name], []).append(name)
    return found


#: First keywords of statements, with the rules of these.
FIRST_WORDS = _by_first_word()


@lru_cache
def parser(first: str = "") -> Lark:
    """Return the parser of the statements that begin with this keyword, or of all. Each is built once.

    This takes 1.0 s of CPU for all statements and for CREATE, and 0.1 s for SHOW, START or STOP.
    """
    rules = _CHOICE.sub(f"?statement: {' | '.join(FIRST_WORDS[first])}", GRAMMAR) if first else GRAMMAR
    return Lark(rules, parser="lalr", lexer="contextual", propagate_positions=True, maybe_placeholders=False)
