"""The project's English keeps to the rules that a machine can check; the list of them is tests/prose.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import prose


@pytest.mark.parametrize("folder", prose.PRODUCT)
def test_docstrings_comments_and_messages(folder: str) -> None:
    paths = [path for path in prose.tracked("*.py") if path.is_relative_to(prose.ROOT / folder)]
    found = prose.findings(paths)
    assert not found, "\n" + "\n".join(map(str, found))


def test_pages() -> None:
    found = prose.findings(prose.tracked("*.md"))
    assert not found, "\n" + "\n".join(map(str, found))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('"""What a run reads."""', "What"),
        ("# nobody reads it", "nobody"),
        ('raise ValueError(f"{name} is no topic")', "is no"),
        ('"""Plan.\n\n' + "word " * 26 + '\n"""', "26 words"),
    ],
)
def test_each_rule_finds_its_case(text: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / "module.py").write_text(text + "\n")
    (found,) = prose.python(tmp_path / "module.py")
    assert word in found.text


def test_code_and_the_reader_are_exempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("Run `ask nobody` if you know the topic.\n\n```\nnobody\n```\n")
    assert not list(prose.page(tmp_path / "page.md"))
