"""The grammar by parts: a statement gives the same tree as with the grammar of all statements."""

from __future__ import annotations

from lark import UnexpectedInput

from kpipe.sql.grammar import FIRST_WORDS, parser
from kpipe.sql.parser import _parse_with
from tests.cases import each_case

LOAD = "AS LOAD DATA KAFKA 'host:9092/topic'"
STATEMENTS = [
    f"CREATE OR REPLACE PIPELINE p {LOAD} INTO TABLE t FORMAT JSON (a <- b::c DEFAULT 1) SET d = a + 1 WHERE a > 2;",
    f"CREATE INFERRED PIPELINE p {LOAD} FORMAT JSON",
    "ALTER PIPELINE p SET OFFSETS EARLIEST",
    "ALTER PIPELINE p DROP PARTITION 3",
    "DROP PIPELINE IF EXISTS show",
    "START PIPELINE p FOREGROUND LIMIT 3 BATCHES",
    "START ALL PIPELINES",
    "STOP PIPELINE IF RUNNING p CANCEL",
    "STOP ALL PIPELINES",
    "DETACH PIPELINE p",
    "TEST PIPELINE p LIMIT 5",
    "SHOW PIPELINES; SELECT 1",
    "SHOW CREATE PIPELINE status EXTENDED",
    "show profile JSON PIPELINE create",
    "PROFILE PIPELINE p LIMIT 2",
    "EXTRACT PIPELINE p FROM 3 OFFSETS 1 TO 2 INTO OUTFILE 'f'",
    f"INFER PIPELINE {LOAD} FORMAT JSON",
    f"INFER TABLE {LOAD} FORMAT JSON",
    "CLEAR PIPELINE ERRORS FOR p",
    "BACKFILL PIPELINE p PARTITION 3 FROM 1 TO 2",
    "REPLAY PIPELINE p",
    "TRUNCATE TABLE d.t",
    "DELETE FROM d.t WHERE a = 1",
    "RESET PIPELINE p, q",
]


def parsed(text: str, first: str = "") -> object:
    try:
        return _parse_with(parser(first), text)
    except UnexpectedInput as error:
        return type(error)


@each_case("text", STATEMENTS)
def test_a_statement_has_the_same_tree_with_the_grammar_of_its_first_word(text: str) -> None:
    first = text.split()[0].upper()
    assert parsed(text, first) == parsed(text)


def test_every_first_word_is_tried() -> None:
    assert {text.split()[0].upper() for text in STATEMENTS} == set(FIRST_WORDS)
    failing = [text for text in STATEMENTS if isinstance(parsed(text), type)]
    assert len(failing) <= 3, failing
