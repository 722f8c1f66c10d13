"""What the commands say to a person, without Kafka and Spark: help, sentences, tables, hints."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from kpipe_assets.cli import kpipe as command


def every(group: click.Command = command, path: str = "kpipe") -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that call it."""
    yield path, group
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            found = group.get_command(click.Context(group), name)
            assert found is not None
            yield from every(found, f"{path} {name}")


@pytest.mark.parametrize(("path", "one"), list(every()), ids=lambda value: value if isinstance(value, str) else "")
def test_help_has_no_marks_and_an_example_on_each_line(path: str, one: click.Command) -> None:
    text = one.get_help(click.Context(one, info_name=path))
    assert "\\" not in text and "\b" not in text
    if "Examples:" not in text:
        return
    examples = text.partition("Examples:\n")[2].split("\n\n")[0].splitlines()
    assert examples and all(line.startswith("    kpipe ") and line.count("kpipe ") == 1 for line in examples), text
