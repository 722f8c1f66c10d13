"""Name topics and tables as OpenLineage does (https://openlineage.io/docs/spec/naming), without secrets."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from kpipe.definition.pipeline import Pipeline, Source
from kpipe.definition.target import Into
from resources.destinations.ducklake_factory import lake_place
from resources.home import Home
from resources.object_store.uri import is_remote, split

__all__ = ["source_namespace", "table_dataset"]

_PORTS = {"mysql": 3306, "singlestore": 3306, "postgres": 5432}


def source_namespace(source: Source) -> str:
    """Return the namespace of a pipeline's topics, or of its files; these are named by their paths."""
    if source.table is not None:
        return f"{source.table.type}://{source.table.database.rpartition('@')[2]}"
    if source.http is not None:
        return "/".join(source.http.name.split("/")[:3])
    if source.lake is not None:
        scheme, _, rest = source.lake.database.rpartition("://")
        return f"{scheme}://{rest.partition('/')[0]}" if scheme else "file"
    if source.files is None:
        return topic_namespace(source.bootstrap)
    scheme, _, rest = source.files.path.rpartition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if scheme else "file"


def topic_namespace(brokers: str) -> str:
    """Return the namespace of a cluster's topics: its first broker."""
    return f"kafka://{brokers.split(',')[0].strip()}"


def table_dataset(pipeline: Pipeline, table: str, home: Home) -> tuple[str, str]:
    """Return namespace and name of a table that the pipeline writes.

    OpenLineage's specification has no names for DuckDB, SingleStore and webhooks. DuckDB's are those of OpenLineage's
    integration of dbt.
    """
    into = pipeline.into
    match into.type:
        case "duckdb":
            file = _absolute(into.database or home.data / "kpipe.duckdb")
            return f"duckdb://{file}", f"{file.stem}.main.{table}"
        case "mysql" | "singlestore":
            host, database, _ = _server(into)
            return f"{into.type}://{host}", f"{database}.{table}"
        case "postgres":
            host, database, schema = _server(into)
            return f"postgres://{host}", f"{database}.{schema}.{table}"
        case "iceberg" | "delta" | "parquet":
            return _folder(into, table, home)
        case "ducklake":
            address, _ = lake_place(pipeline, home)
            return f"ducklake://{address.rpartition('@')[2].partition('?')[0]}", f"main.{table}"
        case "kafka":
            brokers = into.brokers if isinstance(into.brokers, str) else ",".join(into.brokers or [])
            return topic_namespace(brokers), into.topic or table
        case "webhook":
            url = urlsplit(into.url or "")  # its query may contain a token
            return (f"{url.scheme}://{url.netloc.rpartition('@')[2]}", url.path or "/") if into.url else ("webhook", table)
        case _:  # a destination of another package: its address may contain secrets
            return into.type, table


def _absolute(path: str | Path) -> Path:
    return Path(path).expanduser().absolute()


def _server(into: Into) -> tuple[str, str, str]:
    """Return host and port, database and schema of a connection string, which may be libpq's list of settings."""
    address, port = into.database or "", _PORTS[into.type]
    if "://" not in address:
        given = dict(item.partition("=")[::2] for item in address.split())
        host, number, database, options = (given.get(name, "") for name in ("host", "port", "dbname", "options"))
        user = given.get("user", "")
    else:
        url = urlsplit(address)
        host, _, number = url.netloc.rpartition("@")[2].split(",")[0].rpartition(":")
        if not host or number.endswith("]"):  # no port
            host, number = url.netloc.rpartition("@")[2].split(",")[0], ""
        database, user = unquote(url.path.removeprefix("/")), unquote(url.netloc.partition("@")[0].partition(":")[0])
        query = parse_qs(url.query)
        options = query.get("options", [""])[0]
        host = query.get("host", [host])[0]
    host = host.split(",")[0]
    host = "localhost" if not host or host.startswith(("/", "@")) else host
    _, _, path = options.replace(" ", "").partition("search_path=")
    schema = path.split(",")[0].partition("-c")[0].strip('"') or "public"
    return f"{host}:{number.split(',')[0] or port}", database or user, schema


def _folder(into: Into, table: str, home: Home) -> tuple[str, str]:
    place, name = str(into.database or home.data / into.type), table
    if into.type == "iceberg":
        name = f"{into.namespace}/{table}"
    if is_remote(place):
        bucket, key = split(place.rstrip("/"))
        return f"{place.partition('://')[0]}://{bucket}", f"{key}/{name}".strip("/")
    return "file", str(_absolute(place) / name)
