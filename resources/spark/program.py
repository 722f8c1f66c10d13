"""The pipeline's program between its definition on the driver and its runs in the tasks."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from kpipe.batch import Piece
from resources.spark.job import Job, ProgramSpec
from transforms.archive import unpack
from transforms.environment import environment
from transforms.preflight import check_unchanged
from transforms.program import Program

__all__ = ["program_for"]


@lru_cache(maxsize=64)
def _checked(file: Path, sha256: str, where: str) -> None:
    check_unchanged(file, sha256, where)  # once a worker and program: hashing it for every range would cost more than its start


def program_for(job: Job, spec: ProgramSpec, piece: Piece, attempt: int) -> Program:
    """The program as it is run for one range, here and now.

    Raises:
        TransformFailed: the file here is not the one that the driver checked.
    """
    file = Path(spec.file)
    if not file.is_absolute():
        from pyspark import SparkFiles

        file = Path(SparkFiles.get(spec.file))
    programs = Path(job.staging).parent / "programs"
    programs.mkdir(mode=0o700, exist_ok=True)
    if spec.member is None:
        _checked(file, spec.sha256, str(piece.source))
        path = file
    else:
        path = unpack(file, programs, spec.sha256) / spec.member
    return Program(
        argv=(str(path), *spec.args),
        env=environment(
            piece.source.topic.name,
            piece.source.partition,
            piece.range.start,
            piece.range.end,
            job.batch,
            attempt,
            tuple(spec.env),
            spec.env,
        ),
        idle_timeout_s=spec.idle_timeout_s,
        scratch=programs,
        secrets=spec.secrets,
    )
