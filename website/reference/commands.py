"""Generate the page of the commands, from the command line's own help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from kpipe_assets.cli import kpipe
from website.reference.markdown import sentence, table

__all__ = ["commands"]

_STATUSES = (
    ("0", "done"),
    ("1", "failed; `kpipe verify`, `kpipe audit`, `kpipe chaos`: not proven; `kpipe adopt`: refused"),
    ("2", "wrong usage or invalid definition"),
    ("3", "an operator must decide: [errors](errors.md)"),
)
_JSON = "as_json"  # the option that the page describes once


def leaves(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is no group, with its whole name, in the order of the help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path} {name}")
        elif command is not None:
            yield f"{path} {name}", command


def option(item: click.Option) -> tuple[str, str]:
    """Return the row of an option: how it is written, what it does, and its default."""
    names = ", ".join(f"`{name}`" for name in (*item.opts, *item.secondary_opts))
    value = "" if item.is_flag else f" `{item.metavar or choices(item.type) or 'N'}`"
    plain = isinstance(item.default, str | int | float) and not isinstance(item.default, bool)
    default = f" Default: `{item.default}`." if plain and not item.is_flag else ""
    return names + value, sentence(item.help or "") + default


def choices(kind: object) -> str:
    """Return the values of a choice."""
    return "|".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else ""


def section(name: str, command: click.Command) -> Iterator[str]:
    """Yield the parts of a command's section."""
    text = inspect.cleandoc(command.help or "")
    body, _, examples = text.partition("\b\nExamples:")
    arguments = [item for item in command.params if isinstance(item, click.Argument)]
    written = " ".join([name, *[item.make_metavar(click.Context(command)) for item in arguments]])
    yield f"## `{name}`\n"
    yield "\n\n".join(" ".join(part.split()) for part in body.strip().split("\n\n")) + "\n"
    options = [item for item in command.params if isinstance(item, click.Option)]
    listed = [item for item in options if item.name != _JSON]
    shown = " [OPTIONS]" * bool(listed) + " [--json]" * (len(listed) < len(options))
    yield f"Usage: `{written}{shown}`\n"
    if listed:
        yield table(("option", "does"), map(option, listed))
    lines = [line.strip() for line in examples.strip().splitlines()]
    lines = [line for line in lines if re.search(r" -(?!-json)|'", line)]  # the usage shows the others
    if lines:
        yield "\n".join(["```sh", *lines, "```\n"])


def commands() -> str:
    """Return the page."""
    found = dict(leaves(kpipe, "kpipe"))
    parts = [
        "# Commands\n",
        "Look up a command, its options and its exit status. `--help` behind a command prints the same.\n",
        "With `--json`, a command prints only [JSON lines](json-output.md) on stdout. All files are in the [home](home.md).\n",
        "Commands: " + ",\n".join(f"[`{name}`](#{anchor(name)})" for name in found) + ".\n",
        "## Exit status\n",
        table(("status", "meaning"), _STATUSES),
    ]
    for name, command in found.items():
        parts += section(name, command)
    return "\n".join(parts)


def anchor(name: str) -> str:
    """Return the anchor of a heading, as GitHub writes it."""
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")
