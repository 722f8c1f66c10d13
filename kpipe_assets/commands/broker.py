"""`kpipe broker start|stop|status|topic`: the local one-node Kafka of this home, for development."""

from __future__ import annotations

import json

import click

from kpipe_assets.terminal import echo
from kpipe_assets.wording import count
from resources.dev_broker.broker import BrokerStatus, LocalBroker
from resources.home import Home

__all__ = ["broker"]


@click.group()
def broker() -> None:
    """The local one-node Kafka of this home, for development and demos.

    It listens on 127.0.0.1 only, keeps running after the command, and keeps data and port between starts.
    """


_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON line on stdout.")


@broker.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port; otherwise the last one, or 9092, or a free one.")
@_as_json
@click.pass_context
def start(context: click.Context, port: int | None, as_json: bool) -> None:
    """Start it (nothing to do if it runs) and wait until it answers."""
    _show(_local(context).start(port), as_json)


@broker.command()
@_as_json
@click.pass_context
def stop(context: click.Context, as_json: bool) -> None:
    """Stop it; topics and records stay for the next start."""
    local = _local(context)
    before = local.status()
    after = local.stop()
    if as_json or not before.running:
        _show(after, as_json)
    else:
        kept = "topics and records stay for the next start" if before.kind == "kafka" else "a mock keeps nothing"
        echo(f"{before.kind} {before.version} on {before.brokers} stopped; {kept}")


@broker.command()
@_as_json
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Say whether it runs, and where."""
    _show(_local(context).status(), as_json)


@broker.command()
@click.argument("name", metavar="NAME")
@click.option("--partitions", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Partitions to make it with.")
@_as_json
@click.pass_context
def topic(context: click.Context, name: str, partitions: int, as_json: bool) -> None:
    """Make the topic NAME on it, to try a pipeline of your own.

    \b
    Examples:
      kpipe broker topic orders
      kpipe broker topic orders --partitions 4
    """
    local = _local(context)
    local.create_topic(name, partitions)
    if as_json:
        echo(json.dumps({"topic": name, "partitions": partitions, "brokers": local.status().brokers}))
    else:
        echo(f"topic {name} with {count(partitions, 'partition')} on {local.status().brokers}")


def _local(context: click.Context) -> LocalBroker:
    """The broker of the home that the command line was given, else of KPIPE_HOME."""
    home = context.find_object(Home) or Home.from_env()
    return LocalBroker(home.check().broker)


def _show(status: BrokerStatus, as_json: bool) -> None:
    if status.notice:
        echo(f"notice: {status.notice}", err=True)
    if as_json:
        known = {"running": status.running, "brokers": status.brokers, "kind": status.kind, "version": status.version}
        echo(json.dumps(known))
    elif status.running:
        echo(f"{status.kind} {status.version} on {status.brokers} (pid {status.pid})")
    else:
        echo(f"not running (`kpipe broker start` starts {status.kind} {status.version})")
