"""Loops over bytes in C: records from librdkafka's queue, lines, formats to columns, columns to COPY.

Built by setuptools if there is a C compiler. Without it kpipe is slower, and programs can read the memory of Spark's JVM.
`KPIPE_NATIVE=0` disables the loops.
"""

from __future__ import annotations

import ctypes
import logging
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

__all__ = ["agent", "library"]

_LOG = logging.getLogger("kpipe.native")
_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64

_NEWEST = (
    "kp_lines_2", "kp_absent", "kp_avro_new", "kp_protobuf_new", "kp_pgcopy", "kp_names", "kp_too_deep", "kp_json_members",
    "kp_instants", "kp_sizes", "kp_json_note", "kp_json_select",
)  # fmt: skip
"""Functions and symbols that a library of this version contains."""


def agent() -> Path | None:
    """Return the file that a JVM loads with -agentpath (agent.c); None if it was not built, or from older sources."""
    for file in sorted(Path(__file__).parent.glob("_kpipe*.so")):
        with suppress(OSError):  # built for another machine
            if hasattr(ctypes.CDLL(str(file)), "Agent_OnLoad"):
                return file
    return None


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """Return the compiled library; None if it was not built, or is disabled."""
    if os.environ.get("KPIPE_NATIVE") == "0":
        return None
    for file in sorted(Path(__file__).parent.glob("_kpipe*.so")):
        try:
            found = ctypes.CDLL(str(file))
        except OSError:  # built for another machine: a shared folder, an image
            continue
        # Built from older sources: `make install` rebuilds it.
        if not all(hasattr(found, name) for name in _NEWEST):
            _LOG.warning("%s was built from older sources and is not used, which costs speed: run `make install`", file.name)
            continue
        for name, result, arguments in (
            ("kp_json_new", _P, [_P, _P, ctypes.c_char_p]),
            ("kp_count", _L, [_P, _L, ctypes.c_char, ctypes.c_char]),
            ("kp_line_ends", _L, [_P, _L, _P, _L]),
            ("kp_names", _L, [_P, _L, _L]),
            ("kp_too_deep", _L, [_P, _L, _L]),
            ("kp_instants", _L, [_P, _P, _P, _L, _P]),
            ("kp_json_free", None, [_P]),
            ("kp_json_select", None, [_P]),
            ("kp_json_note", None, [_P]),
            ("kp_json_notes", None, [_P, _P, _P, _P, _P]),
            ("kp_absent", None, [_P, _I, _P]),
            ("kp_json_decode", _L, [_P, _P, _P, _L, _P]),
            ("kp_json_members", None, [_P, _P, _P, _L, _P, _L, ctypes.c_char_p, _L, _P, _L, ctypes.c_char_p, _I, _P, _P, _P]),
            ("kp_csv_new", _P, [_P, _P, ctypes.c_char_p, _P]),
            ("kp_csv_free", None, [_P]),
            ("kp_csv_decode", _L, [_P, _P, _P, _L, _P, _P]),
            ("kp_avro_new", _P, [_P, _L, _L, ctypes.c_char_p, _L, _P, _P, ctypes.c_char_p]),
            ("kp_avro_free", None, [_P]),
            ("kp_avro_decode", _L, [_P, _P, _P, _P, _L, _L, _P]),
            ("kp_protobuf_new", _P, [_P, _L, _L, _L, ctypes.c_char_p, _L, _P, _P, ctypes.c_char_p]),
            ("kp_protobuf_free", None, [_P]),
            ("kp_protobuf_decode", _L, [_P, _P, _P, _P, _L, _L, _P]),
            ("kp_pgcopy_room", _L, [_P, _L, _L]),
            ("kp_pgcopy", _L, [_P, _L, _L, _P]),
            ("kp_sizes", _L, [_P, _P]),
            ("kp_copy", None, [_P, _I, _P, _P, _P]),
            ("kp_taken_new", _P, [_P]),
            ("kp_taken_free", None, [_P]),
            ("kp_take", _L, [_P, _P, _I, _L, _L, _L]),
        ):
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
        return found
    return None
