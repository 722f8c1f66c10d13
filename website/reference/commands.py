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
    ("1", "failed; `kpipe verify`: the table and the ledger differ"),
    ("2", "wrong usage or invalid definition"),
    ("3", "an operator must decide: [errors](errors.md)"),
)


def leaves(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is no group, with its whole name, in the order of the help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path} {name}")
        elif command is not None:
            yield f"{path} {name}", command


def option(item: click.Option) -> tuple[str, str, str]:
    """Return the row of an option: how it is written, its default, what it does."""
    names = ", ".join(f"`{name}`" for name in (*item.opts, *item.secondary_opts))
    value = "" if item.is_flag else f" `{item.metavar or choices(item.type) or 'N'}`"
    plain = isinstance(item.default, str | int | float) and not isinstance(item.default, bool)
    return names + value, f"`{item.default}`" if plain and not item.is_flag else "", sentence(item.help or "")


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
    yield f"Usage: `{written} [OPTIONS]`\n"
    options = [option(item) for item in command.params if isinstance(item, click.Option)]
    if options:
        yield table(("option", "default", "does"), options)
    lines = [line.strip() for line in examples.strip().splitlines()]
    if lines:
        yield "\n".join(["```sh", *lines, "```\n"])


def commands() -> str:
    """Return the page."""
    found = dict(leaves(kpipe, "kpipe"))
    parts = [
        "# Commands\n",
        "Look up a command, its options and its exit status. `--help` behind a command prints the same.\n",
        "With `--json`, a command prints only [JSON lines](json-output.md) on stdout. Everything that kpipe writes lies in the\n"
        "[home](home.md).\n",
        table(("command", "does"), [overview(name, item) for name, item in found.items()]),
        "## Exit status\n",
        table(("status", "meaning"), _STATUSES),
    ]
    for name, command in found.items():
        parts += section(name, command)
    return "\n".join(parts)


def overview(name: str, command: click.Command) -> tuple[str, str]:
    """Return the row of a command in the first table."""
    return f"[`{name}`](#{anchor(name)})", sentence(command.get_short_help_str(200))


def anchor(name: str) -> str:
    """Return the anchor of a heading, as GitHub writes it."""
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")
