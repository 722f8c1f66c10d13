"""Check the project's English by rules that a machine can hold: `python -m tests.prose [PATH...]` prints what breaks them.

- Docstrings of functions start with a verb in the imperative (ruff's D401 checks the mood), never with What, Which or Whether.
- Phrases that a reader has to decode are not used in docstrings, comments, messages and pages.
- A sentence has at most `WORDS` words; a span of code, or a list of them, counts as one.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PRODUCT = ("kpipe", "transforms", "resources", "kpipe_assets")
WORDS = 25

#: A phrase, and what to write instead.
PHRASES = (
    (r"\b(?:no|some)body\b|\bsomeone\b|\bwhoever\b", "name the actor: run, worker, broker, operator, client"),
    (r"\b(?:say|says|said|saying)\b", "report, contain, define, name"),
    (r"\b(?:know|knows|knew)\b", "contain, list, support, have"),
    (r"\b(?:tell|tells|told|telling)\b", "report, pass, notify; distinguish"),
    (r"\b(?:hear|hears|heard)\b", "receive"),
    (r"\b(?:ask|asks|asked|asking)\b", "query, request, read"),
    (r"\b(?:stand|stands|stood)\b(?!-)", "be, be written, be recorded"),
    (r"\bholds?\b(?! (?:(?:a|an|the|its|this|that|one|no) )?(?:\w+ )?locks?\b)", "contain, keep, apply, be true"),
    (r"\blooks?\b(?! up\b)", "read, check, query"),
    (
        r"(?<!there )\b(?:is|are|was|were) (?:no|none)\b(?! (?:longer|more|order)\b)",
        "is not a ..., does not exist, is invalid, is missing",
    ),
    (r"\bgone\b", "missing, deleted, lost"),
    (r"\b(?:comes?|came|is|are) twice\b", "is duplicated"),
    (r"\bmend(?:s|ed|ing)?\b", "fix"),
    (r"\banew\b|\bmade again\b", "again, recreated"),
    (r"\bone that\b", "name the thing"),
    (r"\bbesides\b", "also"),
    (r"\bfor good\b", "permanently, final"),
    (r"\bcourtesy\b|\bleft alone\b|\bfrom then on\b", "best effort; unchanged; afterwards"),
)
#: Without phrases that are misleading of code, and usual where a page speaks about its reader or another person.
_IN_PAGES = [phrase for phrase in PHRASES if not re.search("say|know|ask|hold|look|tell", phrase[0])]
_STARTS = re.compile(r"(?:What|Which|Where|Whether|Who|How|When|Why)\b")
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+")
_PARAGRAPH = re.compile(r"\n\s*\n|\n\s*(?:[-*|#]|\d+\.)\s|\n\s*\w+:|\|")


class Finding(NamedTuple):
    """One place that breaks a rule."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def phrases(path: str, line: int, text: str, patterns: Sequence[tuple[str, str]] = PHRASES) -> Iterator[Finding]:
    """Find phrases that are not to be used; spans of code do not count."""
    plain = re.sub(r"`[^`\n]*`", lambda span: "x" * len(span[0]), text)
    for pattern, instead in patterns:
        for match in re.finditer(f"(?<!you )(?:{pattern})", plain, re.IGNORECASE):
            if match[0].endswith("None"):
                continue
            yield Finding(path, line + text.count("\n", 0, match.start()), f"{match[0]!r}: write {instead}")


def long_sentences(path: str, line: int, text: str) -> Iterator[Finding]:
    """Find sentences of more than `WORDS` words."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`\n]*`(?:, `[^`\n]*`)*", "x", text))
    for paragraph in _PARAGRAPH.split(plain):
        for sentence in _SENTENCE.split(" ".join(paragraph.split())):
            words = sentence.split()
            if len(words) > WORDS:
                at = text.find(" ".join(words[:3]))
                yield Finding(path, line + text.count("\n", 0, max(at, 0)), f"{len(words)} words: {' '.join(words[:8])} ...")


def python(path: Path) -> Iterator[Finding]:
    """Check docstrings, comments and texts of a module."""
    source, name = path.read_text(), str(path.relative_to(ROOT))
    tree = ast.parse(source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from phrases(name, token.start[0], token.string)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from phrases(name, node.lineno, node.value)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is None:
                continue
            line = node.body[0].lineno
            yield from long_sentences(name, line, text)
            if _STARTS.match(text):
                yield Finding(name, line, f"starts with {text.split()[0]!r}: write an imperative verb and its object")


def page(path: Path) -> Iterator[Finding]:
    """Check a page; blocks of code do not count."""
    name = str(path.relative_to(ROOT))
    text = re.sub(r"^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), path.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    yield from phrases(name, 1, text, _IN_PAGES)
    yield from long_sentences(name, 1, text)


def tracked(*patterns: str) -> list[Path]:
    """List files of the project: tracked ones, and new ones that are not ignored."""
    shown = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted({ROOT / name for name in shown.stdout.splitlines() if (ROOT / name).is_file()})


def findings(paths: list[Path]) -> list[Finding]:
    """Check files by their kind."""
    return [found for path in paths for found in (python(path) if path.suffix == ".py" else page(path))]


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    everything = [
        path
        for path in tracked("*.py", "*.md")
        if (path.suffix == ".md" or path.relative_to(ROOT).parts[0] in PRODUCT) and path.name != "CHANGELOG.md"
    ]
    shown = findings([path for path in everything if not chosen or any(path == each or each in path.parents for each in chosen)])
    for each in shown:
        print(each)
    print(f"{len(shown)} findings")
