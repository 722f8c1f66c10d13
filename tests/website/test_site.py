"""The site lists every page, and a broken link is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from website.__main__ import CONTENT, ROOT, copy_content
from website.links import broken_links


def listed() -> list[str]:
    return re.findall(r'"([\w./-]+\.md)"', (ROOT / "website" / "zensical.toml").read_text(encoding="utf-8"))


def test_the_navigation_lists_every_page_once() -> None:
    pages = {str(path.relative_to(ROOT)) for pattern in CONTENT for path in ROOT.glob(pattern) if path.suffix == ".md"}
    decisions = {page for page in pages if re.match(r"docs/adr/\d", page)}  # docs/adr/README.md lists them
    assert sorted(listed()) == sorted(pages - decisions)


def test_the_site_has_every_file_that_its_pages_link(tmp_path: Path) -> None:
    copy_content(tmp_path)
    for page in tmp_path.rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            target = link.partition("#")[0]
            assert not target or "://" in target or (page.parent / target).is_file(), f"{page.relative_to(tmp_path)}: {link}"


@pytest.mark.parametrize(
    ("link", "broken"),
    [
        ("other/", False),
        ("other/index.html", False),
        ("other/#there", False),
        ("#here", False),
        ("https://example.com/nothing", False),
        ("missing/", True),
        ("missing.svg", True),
        ("other/#missing", True),
        ("#missing", True),
    ],
)
def test_a_link_to_a_missing_file_or_heading_is_broken(link: str, broken: bool, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<h2 id="there">There</h2>')
    (tmp_path / "index.html").write_text(f'<h2 id="here">Here</h2><a href="{link}">link</a>')
    assert broken_links(tmp_path) == ([("index.html", link)] if broken else [])
