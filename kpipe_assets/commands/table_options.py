"""Options that name a table which another program loaded, for `kpipe audit` and `kpipe adopt`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kpipe.definition.references import is_reference

if TYPE_CHECKING:
    from resources.audit.table_address import TableAddress

__all__ = ["address", "pairs", "place_options", "table_options", "templates"]

_F = TypeVar("_F", bound=Callable[..., Any])
_TYPES = ("duckdb", "parquet", "postgres", "mysql", "delta", "iceberg")


def pairs(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse `KEY=VALUE`, repeated."""
    found: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"expected KEY=VALUE, found {key!r}", param=parameter)  # the value may be a secret
        found[key] = text
    return found


def templates(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse `KEY=TEMPLATE`, repeated. A literal value is refused."""
    found = pairs(context, parameter, values)
    literal = [key for key, text in found.items() if not is_reference(text)]
    if literal:  # other users of the machine can list the arguments of a process
        raise click.BadParameter(f"{literal[0]}: expected a template, such as \"{{{{ env('NAME') }}}}\"", param=parameter)
    return found


def _all(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    def add(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def table_options(required: bool) -> Callable[[_F], _F]:
    """Add the options of the table and of its columns."""
    own = "" if required else " By default the pipeline's own table."
    return _all(
        click.option("--type", "kind", type=click.Choice(_TYPES), required=required, help=f"Type of the table.{own}"),
        click.option(
            "--database", required=required, metavar="PLACE", help="File, folder or URL of the table, without a password."
        ),
        click.option("--table", default="", metavar="NAME", help="Table in that database."),
        click.option(
            "--partition-column", metavar="COLUMN", help="Column, or COLUMN.FIELD of a struct or a JSON document."
        ),
        click.option(
            "--offset-column", metavar="COLUMN", help="As --partition-column. Both by default: those of known loaders."
        ),
        click.option(
            "--topic-column", metavar="COLUMN", help="Leave out rows of other topics; empty: count rows of all topics."
        ),
        click.option("--topic-value", metavar="TEXT", help="The topic's name in that column, if it differs."),
    )  # fmt: skip


def place_options(command: _F) -> _F:
    """Add the options of a snapshot and of Iceberg's catalogue."""
    return _all(
        click.option(
            "--snapshot",
            type=click.IntRange(0, 2**63 - 1),
            metavar="ID",
            help="Snapshot of Iceberg, or version of Delta; the current one by default.",
        ),
        click.option("--catalog", metavar="URL", help="Iceberg's catalogue; see into.catalog."),
        click.option("--catalog-name", metavar="NAME", help="See into.catalog_name."),
        click.option("--namespace", default="default", show_default=True, metavar="NAME", help="Namespace of the Iceberg table."),
    )(command)


def address(options: Mapping[str, Any]) -> TableAddress:
    """Return the table that the options name."""
    from resources.audit.table_address import TableAddress

    return TableAddress(
        options["kind"],
        options["database"],
        options["table"],
        options["snapshot"],
        options["catalog"],
        options["catalog_name"],
        options["namespace"],
        options["table_credential"],
    )
