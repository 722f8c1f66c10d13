"""REGEXP_LIKE, REGEXP_SUBSTR, REGEXP_INSTR and REGEXP_REPLACE, as MySQL and SingleStore call them.

Sources: MySQL 8.4 manual, "Regular Expressions"; SingleStore's manual, "Regular Expression Functions". Where both differ, the
call is refused with what to write instead.
"""

from __future__ import annotations

import re

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.binding import bind_sql
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.functions.text_arguments import written_number
from kpipe.expressions.mysql.patterns import anchored, groups, pattern_of, translated
from kpipe.expressions.mysql.values import Value, quoted, text

__all__ = ["FUNCTIONS"]

_MOST_OCCURRENCES = 10
_FLAGS = {"c": "", "i": "i", "m": "m", "n": "s", "u": ""}


def _flagged(pattern: str, flags: Value | None) -> str:
    """The pattern for RE2, with a match type's letters: the last one of `c` and `i` counts.

    Raises:
        Untranslated: the letters are not written out, or are none of MySQL's.
    """
    made = translated(pattern)
    if flags is None:
        return made
    letters = flags.literal if flags.kind == "text" else None
    if letters is None or set(letters) - set(_FLAGS):
        raise Untranslated("a match type must be written out in quotes", "letters: c, i, m, n, u")
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
    """A place or an occurrence, which is written out."""
    count = 1 if value is None else written_number(value, f"the {name} of a pattern's function")
    if count < least:
        raise Untranslated(f"the {name} of a pattern's function is {count}", f"write {least} or more")
    if count > 1 and anchored(pattern):
        raise Untranslated(f"{name} {count} with ^ in the pattern is not translated", "write SUBSTRING(value, place)")
    if name == "occurrence" and count > _MOST_OCCURRENCES:
        raise Untranslated(f"occurrence {count} is not translated", f"write {_MOST_OCCURRENCES} or less")
    return count


def _after(value: str, made: str, place: int, times: int) -> str:
    """How many characters are behind so many matches, and before a place; NULL where there are fewer."""
    if not times:
        return str(place - 1)
    return bind_sql(lambda x, before: _step(x, made, before, "next"), value, _after(value, made, place, times - 1))


def _step(value: str, made: str, before: str, wanted: str) -> str:
    """The `begin` or the `end` of the next match behind so many characters, or where the one after it is looked for (`next`)."""
    rest = f"substring({value}, {before} + 1)"
    parts = f"regexp_extract({rest}, {quoted(f'^((?s:.*?))({made})')}, ['b', 'm'])"
    length = "length({0}.b)" if wanted == "begin" else "length({0}.b) + length({0}.m)"
    if wanted == "next":  # behind an empty match the search goes on with the next character
        length = "length({0}.b) + greatest(length({0}.m), 1)"
    ahead = f"regexp_matches({rest}, {quoted(made)})"
    return f"(CASE WHEN {ahead} THEN {before} + {bind_sql(length.format, parts)} END)"


def _instr(value: Value, pattern: Value, place: Value | None = None, occurrence: Value | None = None,
           end: Value | None = None, flags: Value | None = None) -> Value:  # fmt: skip
    """The place of a match, or with 1 the one behind it; 0 where there is none."""
    written = pattern_of(pattern)
    if written is None:
        return Value("CAST(NULL AS BIGINT)", "int")
    made = _flagged(written, flags)
    first, times = _counted(place, "position", written), _counted(occurrence, "occurrence", written)
    behind = 0 if end is None else written_number(end, "the option of REGEXP_INSTR")
    if behind not in (0, 1):
        raise Untranslated(f"the option {behind} of REGEXP_INSTR is none", "0: where it begins, 1: behind its end")

    def body(x: str) -> str:
        before = _after(x, made, first, times - 1)
        found = bind_sql(lambda x, skipped: _step(x, made, skipped, "end" if behind else "begin"), x, before)
        return f"(CASE WHEN {x} IS NOT NULL THEN coalesce({found} + 1, 0) END)"

    return Value(bind_sql(body, text(value).sql), "int", 10)


def _substr(value: Value, pattern: Value, place: Value | None = None, occurrence: Value | None = None,
            flags: Value | None = None) -> Value:  # fmt: skip
    """The text of a match; NULL where there is none."""
    written = pattern_of(pattern)
    if written is None:
        return Value("CAST(NULL AS VARCHAR)", "text")
    made = quoted(_flagged(written, flags))
    first, times = _counted(place, "position", written), _counted(occurrence, "occurrence", written)
    said = text(value).sql if first == 1 else f"substring({text(value).sql}, {first})"
    if times > 1:
        return Value(f"regexp_extract_all({said}, {made})[{times}]", "text")
    return Value(
        bind_sql(lambda x: f"(CASE WHEN regexp_matches({x}, {made}) THEN regexp_extract({x}, {made}) END)", said), "text"
    )


def _replace(value: Value, pattern: Value, new: Value, *more: Value) -> Value:
    """With letters behind it SingleStore's: the first match, or all with `g`. With numbers MySQL's: 0 is all."""
    written = pattern_of(pattern)
    if written is None or new.kind == "null":
        return Value("CAST(NULL AS VARCHAR)", "text")
    if not more and (not written.startswith("^") or "|" in written):
        raise Untranslated(
            "REGEXP_REPLACE with three arguments replaces all matches in MySQL, and the first one in SingleStore",
            "write REGEXP_REPLACE(value, pattern, text, 'g') for all, or 'c' for the first one",
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
        raise Untranslated("the letters of REGEXP_REPLACE must be written out, and be its last argument", "letters: c, i, g")
    made = _flagged(pattern, Value("", "text", literal=letters.replace("g", "")))
    every = ", 'g'" if "g" in letters else ""
    return Value(f"regexp_replace({said}, {quoted(made)}, {into}{every})", "text")


def _replacement(new: Value, count: int) -> str:
    """The new text for RE2: `$1` (MySQL) and `\\1` (MariaDB, SingleStore) are a group.

    Raises:
        Untranslated: it is taken from a record, or names a group that the pattern has not.
    """
    if new.literal is None:
        raise Untranslated("the new text of REGEXP_REPLACE must be written out", "write CONCAT of REGEXP_SUBSTR and other parts")

    def mean(match: re.Match[str]) -> str:
        found = match[0]
        if found[-1].isdigit():
            if int(found[1:]) > count:
                raise Untranslated(f"the pattern has no group {found[1:]}", f"it has {count}")
            return f"\\{found[1:]}"
        return "\\\\" if found in ("\\", "\\\\") else found[-1] if found[0] == "\\" else found

    return re.sub(r"\$\d|\\.|\\|\$", mean, new.literal, flags=re.DOTALL)


FUNCTIONS: dict[str, Function] = {
    "REGEXP_LIKE": Function(_like, 2, 3),
    "REGEXP_INSTR": Function(_instr, 2, 6),
    "REGEXP_SUBSTR": Function(_substr, 2, 5),
    "REGEXP_REPLACE": Function(_replace, 3, 6),
}
