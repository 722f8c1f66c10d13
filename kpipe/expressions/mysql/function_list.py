"""Look up functions by name and number of arguments. A function that is not listed is rejected by its name.

Each family has its own module (`FUNCTIONS` in `*_functions.py`). Names are upper case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.function import Function
from kpipe.expressions.mysql.functions.byte_functions import FUNCTIONS as packed
from kpipe.expressions.mysql.functions.condition_functions import FUNCTIONS as conditions
from kpipe.expressions.mysql.functions.format_functions import FUNCTIONS as formats
from kpipe.expressions.mysql.functions.hash_functions import FUNCTIONS as hashes
from kpipe.expressions.mysql.functions.number_functions import FUNCTIONS as numbers
from kpipe.expressions.mysql.functions.pattern_functions import FUNCTIONS as patterns
from kpipe.expressions.mysql.functions.search_functions import FUNCTIONS as searches
from kpipe.expressions.mysql.functions.text_functions import FUNCTIONS as texts
from kpipe.expressions.mysql.json.json_functions import FUNCTIONS as documents
from kpipe.expressions.mysql.refused.functions import REFUSED
from kpipe.expressions.mysql.times.clocks import FUNCTIONS as clocks
from kpipe.expressions.mysql.times.date_formats import FUNCTIONS as date_formats
from kpipe.expressions.mysql.times.date_reading import FUNCTIONS as reading
from kpipe.expressions.mysql.times.format_words import FUNCTIONS as words
from kpipe.expressions.mysql.times.time_arithmetic import FUNCTIONS as arithmetic
from kpipe.expressions.mysql.times.time_buckets import FUNCTIONS as buckets
from kpipe.expressions.mysql.times.time_functions import FUNCTIONS as times
from kpipe.expressions.mysql.values import Value

__all__ = ["SPECIAL", "called", "is_name", "known"]


@lru_cache(maxsize=1)
def known() -> Mapping[str, Function]:
    """Return all supported functions by name."""
    return {
        **conditions, **documents, **formats, **hashes, **numbers, **patterns, **searches, **texts, **times, **arithmetic,
        **clocks, **packed, **buckets, **date_formats, **reading, **words,
    }  # fmt: skip


#: Calls with their own syntax or rule.
SPECIAL = ("CAST", "CONVERT", "EXTRACT", "TRIM", "VALUES", "GET_KAFKA_PIPELINE_PROP", "DUCKDB")


def is_name(name: str) -> bool:
    """Return whether the name is a function of MySQL or SingleStore, supported or rejected."""
    return name.upper() in {*known(), *REFUSED, *SPECIAL}


def called(name: str, args: Sequence[Value]) -> Value:
    """Compile a call.

    Raises:
        Untranslated: the function is not supported, or has the wrong number of arguments.
    """
    if name == "DUCKDB":
        raise Untranslated("DUCKDB('...') must be the whole expression", "write all of it inside the quotes")
    function = known().get(name)
    if function is None:
        if name in REFUSED:
            raise Untranslated(f"{name} is not supported: {REFUSED[name][0]}", REFUSED[name][1])
        near = get_close_matches(name, known(), n=1, cutoff=0.75)
        raise Untranslated(
            f"unknown function {name}",
            f"did you mean {near[0]}?" if near else "docs/reference/functions.md lists all functions",
        )
    if len(args) < function.least or (function.most is not None and len(args) > function.most):
        wanted = (
            str(function.least)
            if function.most == function.least
            else f"{function.least} or more"
            if function.most is None
            else f"{function.least} to {function.most}"
        )
        raise Untranslated(f"{name}: expected {wanted} argument{'' if wanted == '1' else 's'}, found {len(args)}")
    return function.rule(*args)
