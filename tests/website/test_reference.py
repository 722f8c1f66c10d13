"""The generated reference pages are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kpipe.errors import KpipeError
from kpipe.sql.statements import __all__ as statements
from kpipe_assets.cli import kpipe
from website.reference import FOLDER, PAGES, page
from website.reference.errors import FIXES
from website.reference.fields import rows
from website.reference.grammar import REJECTED, rules
from website.reference.json_output import STATUS, checked

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_generated_from_the_code_as_it_is(name: str) -> None:
    written = (ROOT / FOLDER / name).read_text(encoding="utf-8")
    assert written == page(name), "run `make reference`"


def test_an_error_without_a_fix_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FIXES, "Fenced")
    with pytest.raises(LookupError, match="differ: Fenced"):
        page("errors.md")


def test_a_field_without_a_description_is_noticed() -> None:
    from kpipe.definition.base import Model

    class Undescribed(Model):
        """A group.

        Attributes:
            one: described.
        """

        one: int = 1
        two: int = 2

    with pytest.raises(LookupError, match="two is missing"):
        list(rows(Undescribed))


def test_a_field_of_json_that_changes_is_noticed() -> None:
    with pytest.raises(LookupError, match="differs from the code: more"):
        checked("x", {"ok": "whether"}, ["ok", "more"])


def test_status_prints_the_fields_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.setenv("KPIPE_HOME", str(tmp_path))
    file = tmp_path / "pipelines" / "p.yaml"
    file.parent.mkdir()
    file.write_text(
        "type: kpipe_assets.KafkaPipeline\n"
        "attributes:\n"
        "  name: p\n"
        "  source: {brokers: '127.0.0.1:1', topic: t, config: {operation.timeout.ms: 100}}\n"
        "  into: {table: t}\n"
    )
    result = CliRunner().invoke(kpipe, ["status", "--json"])
    assert list(json.loads(result.stdout.splitlines()[0])) == list(STATUS)


def test_the_grammar_has_every_rule_that_it_names() -> None:
    import re

    found = rules()
    tokens = {"string", "name"}
    named = {word for body in found.values() for word in re.findall(r"(?<![\w'])[a-z_]{2,}", body)}
    assert named - tokens <= found.keys()
    assert not REJECTED & found.keys()
    assert len(statements) > 10


def test_every_error_of_the_page_is_an_error() -> None:
    from kpipe import errors

    assert all(issubclass(getattr(errors, name), KpipeError) for name in FIXES)
