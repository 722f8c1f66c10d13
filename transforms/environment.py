"""Environment variables of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe.errors import InvalidPipeline


def environment(
    topic: str,
    partition: int,
    start: int,
    end: int,
    batch: str,
    attempt: int,
    passed: Sequence[str],
    parent: Mapping[str, str],
) -> dict[str, str]:
    """Return the variables of one run; `Program` adds PATH, HOME, LANG and TMPDIR if missing.

    Args:
        topic: the topic's name.
        partition: number of the partition.
        start: first offset of the range.
        end: offset after the range's last.
        batch: the batch's id.
        attempt: number of the attempt, from 0.
        passed: names that the pipeline lists under `transform.env`.
        parent: source of their values, such as os.environ.

    Raises:
        InvalidPipeline: a listed variable is not set, or is one of kpipe's own.
    """
    own = {
        "KPIPE_TOPIC": topic,
        "KPIPE_PARTITION": str(partition),
        "KPIPE_START_OFFSET": str(start),
        "KPIPE_END_OFFSET": str(end),
        "KPIPE_BATCH": batch,
        "KPIPE_ATTEMPT": str(attempt),
    }
    for name in passed:
        if name in own:
            raise InvalidPipeline(f"transform.env lists {name}, which kpipe sets itself", f"remove {name} from transform.env")
        if not name or "=" in name or "\0" in name:
            raise InvalidPipeline(f"transform.env lists {name!r}, which cannot be a variable's name", "list names only")
        if name not in parent:
            raise InvalidPipeline(
                f"transform.env lists {name}, which is not set", f"export {name}=..., or remove it from transform.env"
            )
    return {**{name: parent[name] for name in passed}, **own}
