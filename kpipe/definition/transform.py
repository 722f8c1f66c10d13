"""The program of a pipeline, its framing, mode and limits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kpipe.definition.base import Model

__all__ = ["Transform"]


class Transform(Model):
    """A program that reads records on stdin and writes rows on stdout.

    Attributes:
        program: path; relative to the current folder and below it, inside the archive, or absolute.
        archive: .tar.gz, .tgz or .zip that contains it.
        args: arguments of the program; every user of the machine can see them.
        stdin: framing of records; with `arrow`, the rows on stdout are an Arrow stream, too.
        mode: `map` one row for each record, `filter` at most one, `flatmap` any number.
        idle_timeout_s: longest time without progress while there is something to do.
        trial_timeout_s: the same while the record is searched that makes the program fail; None: as above.
        memory_mb: maximum memory of the program and its processes together, in MiB; None: no limit but the machine's.
        max_output_mb: what a `flatmap` program, or any program with `stdin: arrow`, may write for one range of offsets, in
            MiB.
        env: names of the variables that are passed to the program.
    """

    program: str
    archive: str | None = None
    args: list[str] = Field(default_factory=list)
    stdin: Literal["lines", "length-prefixed", "json", "arrow"] = "lines"
    mode: Literal["map", "filter", "flatmap"] = "map"
    idle_timeout_s: float = Field(default=60, gt=0)
    trial_timeout_s: float | None = Field(default=None, gt=0)
    memory_mb: int | None = Field(default=None, ge=1)
    max_output_mb: int = Field(default=10240, ge=1)
    env: list[str] = Field(default_factory=list)

    @property
    def traced(self) -> bool:
        """True if each row has the offset of its record."""
        return self.stdin == "arrow" or self.mode == "map"
