"""`kpipe broker install|start|stop|status|topic`: manage the local one-node Kafka of KPIPE_HOME, for development."""

from __future__ import annotations

import json

import click

from kpipe_assets.terminal import echo
from kpipe_assets.wording import count
from resources.dev_broker import kafka_jars
from resources.dev_broker.broker import BrokerStatus, LocalBroker
from resources.home import Home

__all__ = ["broker"]


@click.group()
def broker() -> None:
    """Manage the local one-node Kafka of KPIPE_HOME, for development and demos.

    It listens on 127.0.0.1 only and keeps running after the command. It keeps its data and port between starts.
    """


_as_json = click.option("--json", "as_json", is_flag=True, help="Print only one JSON line on stdout.")


@broker.command()
def install() -> None:
    """Install Kafka's jars from Maven Central into this Python environment.

    Each jar is checked against its hash. In a checkout, `make install` does the same. Requires the extra `demo`.
    """
    echo(f"Kafka {kafka_jars.VERSION}: {kafka_jars.install()}")


@broker.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port. Default: the last one, else 9092, else a free one.")
@_as_json
@click.pass_context
def start(context: click.Context, port: int | None, as_json: bool) -> None:
    """Start the broker and wait until it answers. Does nothing if it runs."""
    _show(_local(context).start(port), as_json)


@broker.command()
@_as_json
@click.pass_context
def stop(context: click.Context, as_json: bool) -> None:
    """Stop the broker. Topics and records are kept for the next start."""
    local = _local(context)
    before = local.status()
    after = local.stop()
    if as_json or not before.running:
        _show(after, as_json)
    else:
        echo(f"kafka {before.version} on {before.brokers} stopped; topics and records are kept for the next start")


@broker.command()
@_as_json
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show whether the broker runs, its address and its version."""
    _show(_local(context).status(), as_json)


@broker.command()
@click.argument("name", metavar="NAME")
@click.option("--partitions", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Number of partitions.")
@_as_json
@click.pass_context
def topic(context: click.Context, name: str, partitions: int, as_json: bool) -> None:
    """Create the topic NAME on the local broker.

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
    """Return the broker of the home in the click context, else of KPIPE_HOME."""
    home = context.find_object(Home) or Home.from_env()
    return LocalBroker(home.check().broker)


def _show(status: BrokerStatus, as_json: bool) -> None:
    if as_json:
        fields = {"running": status.running, "brokers": status.brokers, "kind": "kafka", "version": status.version}
        echo(json.dumps(fields))
    elif status.running:
        echo(f"kafka {status.version} on {status.brokers} (pid {status.pid})")
    else:
        echo(f"not running (`kpipe broker start` starts kafka {status.version})")
