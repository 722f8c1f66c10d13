"""Cut a program's stdout at lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kpipe.errors import TransformFailed


def line_blocks(
    chunks: Iterable[bytes], *, block_bytes: int = 1 << 22, max_line_bytes: int = 1 << 26, where: str = ""
) -> Iterator[bytes]:
    """Yield blocks that end with a newline, of about `block_bytes` each; memory is bounded by that plus one line.

    The last block may lack the newline if the chunks do; `TransformRun` rejects that before the end is reached.

    Args:
        chunks: chunks of stdout from a run.
        block_bytes: a block is yielded as soon as it has that many bytes.
        max_line_bytes: a longer line is an error, as a line is kept in memory as a whole.
        where: coordinates for the message.

    Raises:
        TransformFailed: a line is too long.
    """
    held: list[bytes] = []  # complete lines first, then the start of one
    size = partial = 0
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if partial + (chunk.find(b"\n") if cut else len(chunk)) > max_line_bytes:
            raise TransformFailed(
                f"transform{f' ({where})' if where else ''}: it wrote a line of more than {max_line_bytes:,} bytes",
                "write newlines between records",
                "work",
            )
        if cut and size + cut >= block_bytes:
            yield b"".join([*held, chunk[:cut]])
            held, size, partial = [], 0, 0
            chunk, cut = chunk[cut:], 0
        if chunk:
            held.append(chunk)
            size += len(chunk)
            partial = len(chunk) - cut if cut else partial + len(chunk)
    if held:
        yield b"".join(held)
