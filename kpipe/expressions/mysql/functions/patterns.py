"""Compile patterns: LIKE, and regular expressions of MySQL and SingleStore, rewritten for RE2, which DuckDB uses.

Letters, digits and white space are those of Unicode, as in MySQL's ICU and MariaDB's PCRE. RE2 has no lookaround, no
back-references and no word boundary for letters beyond ASCII: these are rejected, and so is syntax that the servers read
differently.
`$` matches at the very end only, as in SingleStore. Sources: MySQL 8.4 manual, "Regular Expressions" and "String Comparison
Functions and Operators"; SingleStore's manual, "Regular Expression Functions"; RE2, "Syntax".
"""

from __future__ import annotations

import re
from functools import lru_cache

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.functions.text_arguments import asked, digits_of
from kpipe.expressions.mysql.values import Value, as_bytes, quoted, text

__all__ = ["anchored", "groups", "like", "matches", "pattern_of", "translated"]

_MOST_WEIGHT = 1000  # of a compiled pattern: RE2 rejects larger ones
_WORD, _SPACE = r"\p{L}\p{N}_", r"\s\x{b}\x{85}\p{Z}"
_NO_SPACE = (
    r"\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
    r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_CLASSES = {"d": r"\p{Nd}", "D": r"\P{Nd}", "w": _WORD, "s": _SPACE, "S": _NO_SPACE}
_POSIX = {
    "alpha": r"\p{L}", "digit": r"\p{Nd}", "alnum": r"\p{L}\p{N}", "upper": r"\p{Lu}", "lower": r"\p{Ll}", "space": _SPACE,
    "xdigit": "0-9A-Fa-f", "blank": r"\t\p{Zs}", "cntrl": r"\p{Cc}", "punct": r"\p{P}$+<=>^`|~", "word": _WORD,
}  # fmt: skip
_CATEGORIES = re.compile(
    "L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfo]?|Arabic|Armenian|Bengali|Cyrillic|Devanagari|Georgian|Greek"
    "|Han|Hangul|Hebrew|Hiragana|Katakana|Latin|Thai"
)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "e": "\x1b", "a": "\x07"}
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d+)(,?)(\d*)\})(\??)")


def pattern_of(value: Value) -> str | None:
    """Return the text of a literal pattern; None for NULL.

    Raises:
        Untranslated: it is not a literal.
    """
    if value.kind == "null":
        return None
    if value.kind != "text" or value.literal is None:
        raise Untranslated(
            "a pattern must be a literal in quotes", "for a pattern from a column, write LIKE or INSTR(value, text) > 0"
        )
    return value.literal


def like(value: Value, pattern: Value, escape: Value) -> Value:
    """Compile `value LIKE pattern ESCAPE escape`. An escaped character matches itself, as does an escape at the end.

    If one of both is binary, `_` matches one byte.

    Raises:
        Untranslated: the escape is not a literal of one character, or is empty.
    """
    mark = escape.literal
    if mark is None or len(mark) > 1 or escape.kind != "text":
        raise Untranslated("ESCAPE takes one character in quotes", "write LIKE pattern ESCAPE '|'")
    if as_bytes(value, pattern):
        return Value(f"({asked('like', *map(digits_of, (value, pattern, escape)))} = '1')", "bool")
    if pattern.kind == "text" and pattern.literal is not None:
        written = quoted(_escaped_for_like(pattern.literal, mark))
        return Value(f"({text(value).sql} LIKE {written} ESCAPE '\\')", "bool")
    written = text(pattern).sql
    if mark and mark != "\\":
        raise Untranslated(
            "ESCAPE with a pattern from a column is not supported", "write LIKE without ESCAPE: the escape is the backslash"
        )
    if not mark:
        written = f"replace({written}, '\\', '\\\\')"
    else:  # a backslash escapes any character; DuckDB allows it only before %, _ and itself
        written = f"regexp_replace({written}, '(\\\\[%_\\\\])|\\\\([^%_\\\\])', '\\1\\2', 'g')"
        written = f"regexp_replace({written}, '^((?s:[^\\\\]|\\\\.)*)\\\\$', '\\1\\\\\\\\')"
    return Value(f"({text(value).sql} LIKE {written} ESCAPE '\\')", "bool")


def _escaped_for_like(pattern: str, mark: str) -> str:
    """Convert a LIKE pattern with another escape character to one with a backslash."""
    made, at = "", 0
    while at < len(pattern):
        sign = pattern[at]
        if mark and sign == mark and at + 1 < len(pattern):
            at += 1
            sign = pattern[at]
            made += f"\\{sign}" if sign in "%_\\" else sign
        else:
            made += "\\\\" if sign == "\\" else sign
        at += 1
    return made


def matches(value: Value, pattern: Value) -> Value:
    """Compile `value REGEXP pattern`, which matches anywhere in the text."""
    written = pattern_of(pattern)
    if written is None:
        return Value("CAST(NULL AS BOOLEAN)", "bool")
    return Value(f"regexp_matches({text(value).sql}, {quoted(translated(written))})", "bool")


@lru_cache(maxsize=256)
def translated(pattern: str) -> str:
    """Convert the pattern to RE2's syntax.

    Raises:
        Untranslated: RE2 does not support it, or the servers read it differently.
    """
    if not pattern:
        raise Untranslated("a pattern is empty", "the servers reject an empty pattern, too")
    reader = _Pattern(pattern)
    made, weight = reader.choices()
    if reader.at < len(pattern):
        raise Untranslated("unmatched ) in a pattern", "write \\\\) for the character")
    if weight > _MOST_WEIGHT:
        raise Untranslated("a pattern is too large", "repeat less: RE2's limit is about 1000 characters, or 300 classes")
    return made


def anchored(pattern: str) -> bool:
    """Return whether the pattern contains ^ or \\A, so that it must not be matched from a later position."""
    return "^" in re.sub(r"\[\^|\\.", "", pattern) or "\\A" in pattern


def groups(pattern: str) -> int:
    """Return the number of capturing groups."""
    return len(re.findall(r"\((?!\?)", re.sub(r"\\.|\[\^?\]?[^]]*\]", "", pattern, flags=re.DOTALL)))


class _Pattern:
    """Rewrites a pattern for RE2, and computes its weight: the number of single characters that it can match.

    Args:
        pattern: the value of the literal, without quotes and escapes.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.depth = pattern, 0, 0

    def ahead(self, sign: str) -> bool:
        return self.pattern.startswith(sign, self.at)

    def take(self) -> str:
        if self.at >= len(self.pattern):
            raise Untranslated("unexpected end of a pattern", "write \\\\\\\\ for a backslash")
        self.at += 1
        return self.pattern[self.at - 1]

    def choices(self) -> tuple[str, int]:
        made, weight = self.sequence()
        while self.ahead("|"):
            self.at += 1
            more, further = self.sequence()
            made, weight = f"{made}|{more}", weight + further
        return made, weight

    def sequence(self) -> tuple[str, int]:
        made, weight = [], 0
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            atom, size = self.atom()
            times, count = self.repeated(atom)
            made.append(atom + times)
            weight += size * count
        return "".join(made), weight

    def repeated(self, atom: str) -> tuple[str, int]:
        found = _QUANTIFIER.match(self.pattern, self.at)
        if found is None:
            if self.ahead("{"):
                raise Untranslated("invalid { in a pattern", "write {2}, {2,} or {2,5}, or \\\\{ for the character")
            return "", 1
        if atom in ("^", "$", "\\A", "\\z"):
            raise Untranslated(f"a pattern repeats {atom}", "remove the repetition")
        self.at = found.end()
        if self.at < len(self.pattern) and self.pattern[self.at] in "*+?{":
            raise Untranslated(f"{self.pattern[found.start() : self.at + 1]} in a pattern is not supported", "repeat once")
        low, high = int(found[1] or 1), int(found[3] or 0)
        if max(low, high) > _MOST_WEIGHT or (found[3] and low > high) or (found[3] and not found[2]):
            raise Untranslated(f"{found[0]} in a pattern is not supported", f"write {{m,n}} with m <= n <= {_MOST_WEIGHT}")
        return found[0], max(low, high, 1)

    def atom(self) -> tuple[str, int]:
        sign = self.take()
        match sign:
            case "(":
                return self.group()
            case "[":
                return self.set_of()
            case "\\":
                return self.escaped()
            case "*" | "+" | "?" | "{":
                raise Untranslated(f"{sign} in a pattern follows nothing", f"write \\\\{sign} for the character")
            case "." | "^" | "$":
                return sign, 1
        return _plain(sign), 1

    def group(self) -> tuple[str, int]:
        self.depth += 1
        if self.depth > 50:
            raise Untranslated("a pattern is nested more than 50 levels deep")
        begin = "("
        if self.ahead("?"):
            found = re.compile(r"\?([ims]*)([:)])").match(self.pattern, self.at)
            if found is None or (found[2] == ")" and not found[1]):
                raise Untranslated(
                    f"({self.pattern[self.at : self.at + 3]} in a pattern is not supported: RE2 has neither lookaround nor names",
                    "write (...), (?:...) or (?i)",
                )
            begin, self.at = f"({found[0]}", found.end()
            if found[2] == ")":
                return begin, 0
        made, weight = self.choices()
        if not self.ahead(")"):
            raise Untranslated("unmatched ( in a pattern", "write \\\\( for the character")
        self.at += 1
        self.depth -= 1
        return f"{begin}{made})", max(weight, 1)

    def escaped(self) -> tuple[str, int]:
        sign = self.take()
        if sign == "W":
            return f"[^{_WORD}]", 3
        if sign in _CLASSES:
            return f"[{_CLASSES[sign]}]", 3
        if sign in "Az":
            return f"\\{sign}", 1
        if sign in "pP":
            return self.category(sign), 3
        return _plain(self.character(sign)), 1

    def character(self, sign: str) -> str:
        """Return the character of an escape sequence."""
        if sign in _NAMED:
            return _NAMED[sign]
        found = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})").match(self.pattern, self.at - 1)
        if found is not None:
            self.at = found.end()
            code = int(found[1] or found[2] or found[3], 16)
            if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000:
                return chr(code)
        if sign.isalnum():
            hints = {"b": "write (^|[^[:alnum:]_]) and ([^[:alnum:]_]|$)", "B": "write [[:alnum:]_]", "Z": "write $"}
            why = "RE2 has no back-references" if sign.isdigit() else "the servers read it differently, or RE2 lacks it"
            raise Untranslated(
                f"\\{sign} in a pattern is not supported: {why}",
                hints.get(sign, "docs/reference/statements.md lists what works"),
            )
        return sign

    def category(self, sign: str) -> str:
        found = re.compile(r"\{(\w+)\}|([A-Z])").match(self.pattern, self.at)
        if found is None or not _CATEGORIES.fullmatch(found[1] or found[2]):
            raise Untranslated(f"\\{sign}{self.pattern[self.at : self.at + 6]} in a pattern is not supported", "write \\\\p{L}")
        self.at = found.end()
        return f"\\{sign}{{{found[1] or found[2]}}}"

    def set_of(self) -> tuple[str, int]:
        """Rewrite a bracket expression."""
        begin = self.at
        negated = self.ahead("^")
        self.at += negated
        made, wide = "", False
        while not self.ahead("]") or not made:
            item, single = self.member()
            wide = wide or not single
            if single and self.ahead("-") and not self.ahead("-]"):
                self.at += 1
                last, plain = self.member()
                if not plain or last < item:
                    raise Untranslated(
                        f"[{self.pattern[begin : self.at]} in a pattern is not a valid range", "write \\\\- for the character"
                    )
                made += f"{_in_set(item)}-{_in_set(last)}"
            else:
                made += _in_set(item) if single else item
        self.at += 1
        return f"[{'^' if negated else ''}{made}]", 3 if wide or negated else 1

    def member(self) -> tuple[str, bool]:
        """Return a member of a bracket expression in RE2's syntax, and whether it is a single character."""
        sign = self.take()
        if sign == "[":
            found = re.compile(r":(\^?)(\w+):\]").match(self.pattern, self.at)
            if found is None or found[1] or found[2] not in _POSIX:
                raise Untranslated(
                    "[ in brackets is not supported: the servers read it differently", "write \\\\[, or [[:alpha:]]"
                )
            self.at = found.end()
            return _POSIX[found[2]], False
        if sign == "&" and self.ahead("&"):
            raise Untranslated("&& in brackets is not supported: the servers read it differently", "write \\\\&")
        if sign != "\\":
            return sign, True
        sign = self.take()
        if sign == "W":
            raise Untranslated("\\W in brackets is not supported", "write [^...] with the characters to exclude")
        if sign in _CLASSES:
            return _CLASSES[sign], False
        if sign in "pP":
            return self.category(sign), False
        return self.character(sign), True


def _plain(sign: str) -> str:
    """Return a literal character, escaped for RE2."""
    return f"\\{sign}" if sign in r"\.+*?()|[]{}^$" else sign


def _in_set(sign: str) -> str:
    return f"\\{sign}" if sign in r"\[]^-&" else sign
