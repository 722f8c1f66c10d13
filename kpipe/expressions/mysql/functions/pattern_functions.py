"""Compile REGEXP_LIKE, REGEXP_SUBSTR, REGEXP_INSTR and REGEXP_REPLACE of MySQL and SingleStore.

Sources: MySQL 8.4 manual, "Regular Expressions"; SingleStore's manual, "Regular Expression Functions". A call
that they evaluate differently is rejected.
"""

from __future__ import annotations

import re

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.functions.patterns import anchored, groups, pattern_of, translated
from kpipe.expressions.mysql.functions.text_arguments import written_number
from kpipe.expressions.mysql.values import Value, literal_text, quoted, text

__all__ = ["FUNCTIONS"]

_MOST_OCCURRENCES = 10
_FLAGS = {"c": "", "i": "i", "m": "m", "n": "s", "u": ""}


def _flagged(pattern: str, flags: Value | None) -> str:
    """Return the pattern for RE2 with the letters of a match type; the last of `c` and `i` wins.

    Raises:
        Untranslated: the letters are not a literal, or not MySQL's.
    """
    made = translated(pattern)
    if flags is None:
        return made
    letters = flags.literal if flags.kind == "text" else None
    if letters is None or set(letters) - set(_FLAGS):
        raise Untranslated("invalid match type: expected letters in quotes", "letters: c, i, m, n, u")
    if letters.rfind("c") > letters.rfind("i"):
        letters = letters.replace("i", "")
    wanted = "".join(sorted({_FLAGS[letter] for letter in letters}))
    return f"(?{wanted}:{made})" if wanted else made


def _like(value: Value, pattern: Value, flags: Value | None = None) -> Value:
    written = pattern_of(pattern)
    if written is None:
        return Value("CAST(NULL AS BOOLEAN)", "bool")
    return Value(f"regexp_matches({text(value).sql}, {quoted(_flagged(written, flags))})", "bool")


def _counted(value: Value | None, name: str, pattern: str, least: int = 1) -> int:
    """Return a position or an occurrence, which must be a literal."""
    count = 1 if value is None else written_number(value, f"the {name} of a pattern function")
    if count < least:
        raise Untranslated(f"{name} {count} is out of range", f"write {least} or more")
    if count > 1 and anchored(pattern):
        raise Untranslated(f"{name} {count} with ^ in the pattern is not supported", "write SUBSTRING(value, position)")
    if name == "occurrence" and count > _MOST_OCCURRENCES:
        raise Untranslated(f"occurrence {count} is out of range", f"write {_MOST_OCCURRENCES} or less")
    return count


def _after(value: str, made: str, place: int, times: int) -> str:
    """Return the number of characters before a position and through that many matches; NULL if there are fewer matches."""
    if not times:
        return str(place - 1)
    return bind_sql(lambda x, before: _step(x, made, before, "next"), value, _after(value, made, place, times - 1))


def _step(value: str, made: str, before: str, wanted: str) -> str:
    """Return the `begin` or `end` of the next match after `before` characters, or where to search after it (`next`)."""
    rest = f"substring({value}, {before} + 1)"
    parts = f"regexp_extract({rest}, {quoted(f'^((?s:.*?))({made})')}, ['b', 'm'])"
    length = "length({0}.b)" if wanted == "begin" else "length({0}.b) + length({0}.m)"
    if wanted == "next":  # after an empty match, the search skips one character
        length = "length({0}.b) + greatest(length({0}.m), 1)"
    ahead = f"regexp_matches({rest}, {quoted(made)})"
    return f"(CASE WHEN {ahead} THEN {before} + {bind_sql(length.format, parts)} END)"


def _instr(value: Value, pattern: Value, place: Value | None = None, occurrence: Value | None = None,
           end: Value | None = None, flags: Value | None = None) -> Value:  # fmt: skip
    """Compile REGEXP_INSTR: the position of a match, or with option 1 the position after it; 0 without a match."""
    written = pattern_of(pattern)
    if written is None:
        return Value("CAST(NULL AS BIGINT)", "int")
    made = _flagged(written, flags)
    first, times = _counted(place, "position", written), _counted(occurrence, "occurrence", written)
    behind = 0 if end is None else written_number(end, "the option of REGEXP_INSTR")
    if behind not in (0, 1):
        raise Untranslated(f"REGEXP_INSTR: option {behind}: expected 0 or 1", "0: start of the match, 1: position after it")

    def body(x: str) -> str:
        before = _after(x, made, first, times - 1)
        found = bind_sql(lambda x, skipped: _step(x, made, skipped, "end" if behind else "begin"), x, before)
        return f"(CASE WHEN {x} IS NOT NULL THEN coalesce({found} + 1, 0) END)"

    return Value(bind_sql(body, text(value).sql), "int", 10)


def _substr(value: Value, pattern: Value, place: Value | None = None, occurrence: Value | None = None,
            flags: Value | None = None) -> Value:  # fmt: skip
    """Compile REGEXP_SUBSTR: the text of a match; NULL without a match."""
    written = pattern_of(pattern)
    if written is None:
        return Value("CAST(NULL AS VARCHAR)", "text")
    made = quoted(_flagged(written, flags))
    first, times = _counted(place, "position", written), _counted(occurrence, "occurrence", written)
    rest = text(value).sql if first == 1 else f"substring({text(value).sql}, {first})"
    if times > 1:
        return Value(f"regexp_extract_all({rest}, {made})[{times}]", "text")
    return Value(
        bind_sql(lambda x: f"(CASE WHEN regexp_matches({x}, {made}) THEN regexp_extract({x}, {made}) END)", rest), "text"
    )


def _replace(value: Value, pattern: Value, new: Value, *more: Value) -> Value:
    """Compile REGEXP_REPLACE: with letters SingleStore's (the first match, or all with `g`); with numbers MySQL's (0: all)."""
    written = pattern_of(pattern)
    if written is None or new.kind == "null":
        return Value("CAST(NULL AS VARCHAR)", "text")
    if not more and (not written.startswith("^") or "|" in written):
        raise Untranslated(
            "REGEXP_REPLACE with three arguments replaces all matches in MySQL, but only the first in SingleStore",
            "write REGEXP_REPLACE(value, pattern, text, 'g') for all matches, or 'c' for the first",
        )
    said, into = text(value).sql, quoted(_replacement(new, groups(written)))
    if not more or more[0].kind == "text":
        return _replaced_by_letters(said, written, into, more)
    place, times, flags = (*more, None, None)[:3]
    made = _flagged(written, flags)
    first = _counted(place, "position", written)
    count = 0 if times is None else _counted(times, "occurrence", written, 0)

    def body(x: str) -> str:
        before = _after(x, made, first, max(count - 1, 0))

        def behind(x: str, skipped: str) -> str:
            every = "" if count else ", 'g'"
            changed = f"regexp_replace(substring({x}, {skipped} + 1), {quoted(made)}, {into}{every})"
            return f"coalesce(left({x}, {skipped}) || {changed}, {x})"

        return bind_sql(behind, x, before)

    return Value(bind_sql(body, said), "text")


def _replaced_by_letters(said: str, pattern: str, into: str, more: tuple[Value, ...]) -> Value:
    letters = (more[0].literal or "") if more else ""
    if len(more) > 1 or set(letters) - set("cig") or (more and more[0].literal is None):
        raise Untranslated("REGEXP_REPLACE: expected letters in quotes as the last argument", "letters: c, i, g")
    made = _flagged(pattern, Value("", "text", literal=letters.replace("g", "")))
    every = ", 'g'" if "g" in letters else ""
    return Value(f"regexp_replace({said}, {quoted(made)}, {into}{every})", "text")


def _replacement(new: Value, count: int) -> str:
    """Return the replacement for RE2: `$1` (MySQL) and `\\1` (MariaDB, SingleStore) are a group.

    Raises:
        Untranslated: it is not a literal, or refers to a missing group.
    """
    said = literal_text(new)
    if said is None:
        raise Untranslated("REGEXP_REPLACE: expected a literal replacement", "write CONCAT of REGEXP_SUBSTR and other parts")

    def mean(match: re.Match[str]) -> str:
        found = match[0]
        if found[-1].isdigit():
            if int(found[1:]) > count:
                raise Untranslated(f"REGEXP_REPLACE: group {found[1:]} does not exist", f"the pattern has {count} groups")
            return f"\\{found[1:]}"
        return "\\\\" if found in ("\\", "\\\\") else found[-1] if found[0] == "\\" else found

    return re.sub(r"\$\d|\\.|\\|\$", mean, said, flags=re.DOTALL)


FUNCTIONS: dict[str, Function] = {
    "REGEXP_LIKE": Function(_like, 2, 3),
    "REGEXP_INSTR": Function(_instr, 2, 6),
    "REGEXP_SUBSTR": Function(_substr, 2, 5),
    "REGEXP_REPLACE": Function(_replace, 3, 6),
}
