"""Run any program that reads stdin and writes stdout over records: framing, running, checking.

- `framing`: records as bytes for stdin, as lines, length-prefixed or JSON envelopes.
- `program`: the program and its limits (`Program`, `Limits`).
- `environment`: environment variables of the program.
- `runner`: one run, bytes in, bytes out (`TransformRun`, `Report`, `run`).
- `blocks`: stdout, cut at lines (`line_blocks`).
- `counts`: records in compared with records out (`check_counts`).
- `preflight`: checks of the program file on the driver (`resolve`, `Resolved`).
- `archive`: programs in an archive (`inspect`, `unpack`).
- `copies`: the copies that are run (`keep`).

Imported inside Spark's Python workers: the standard library and `kpipe` only, and nothing at import that takes time.
"""

from transforms.blocks import line_blocks
from transforms.copies import keep
from transforms.counts import MODES, check_counts
from transforms.environment import environment
from transforms.framing import FRAMINGS, NewlineInValue, json_envelopes, length_prefixed, lines
from transforms.preflight import Resolved, resolve
from transforms.program import Limits, Program
from transforms.runner import Report, TransformRun, run

__all__ = [
    "FRAMINGS",
    "MODES",
    "Limits",
    "NewlineInValue",
    "Program",
    "Report",
    "Resolved",
    "TransformRun",
    "check_counts",
    "environment",
    "json_envelopes",
    "keep",
    "length_prefixed",
    "line_blocks",
    "lines",
    "resolve",
    "run",
]
