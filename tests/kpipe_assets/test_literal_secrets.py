"""A literal secret in a definition: each place that reads or shows one, each field that may contain one, each form of it.

Statements and REST reject it, and repeat it nowhere. A file may contain it, or is rejected; what shows its definition masks it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.references import from_statement
from kpipe.definition.yaml_codec import COMPONENT, SOURCE_COMPONENT, from_yaml
from kpipe.errors import InvalidPipeline, InvalidStatement, KpipeError
from kpipe.sql.masking import masked as masked_statement
from kpipe.sql.parser import read, read_all
from kpipe.sql.renderer import to_sql
from kpipe.sql.statements import Query
from kpipe_assets.component import KafkaPipeline
from kpipe_assets.rest.configs import flat, masked, texts
from kpipe_assets.rest.definitions import parse
from kpipe_assets.rest.worker import Worker
from kpipe_assets.statements import queries
from kpipe_assets.telemetry.lineage_datasets import table_dataset, topic_namespace
from resources.destinations import open_destination, summary
from resources.home import Home

#: Forms of a credential that is no reference, or is one only in part.
CREDENTIALS = (
    "SEKRET", "SEKRET${env:HOME}", "sid=SEKRET;b=${env:HOME}", "${env:NOPE:-SEKRET}", "{{ env('NOPE', 'SEKRET') }}",
    "${env:NOPE:SEKRET}", "Bearer SEKRET", "${env:HOMESEKRET",
)  # fmt: skip
#: Forms of a secret in a header with a harmless name.
HEADERS = (
    "Bearer SEKRET", "Basic dTpTRUtSRVQ=", "sid=SEKRET", "1,Authorization:SEKRET", "https://u:SEKRET@h/",
    "${env:NOPE:SEKRET}", "${env:NOPE:-SEKRET}", "eyJhbGciOiJIUzI1NiJ9.SEKRET.x",
)  # fmt: skip
QUERIES = ("token=SEKRET", "a=1&sig=SEKRET", "access_token=SEKRET", "api_key=SEKRET", "code=SEKRET", "key=SEKRET")
STORES = (
    "s3://AKIAX:SEKRET@bucket/in/x", "az://container/in/x?sv=1&sig=SEKRET", "az://c/k?code=SEKRET",
    "s3://b/k?X-Amz-Algorithm=a&X-Amz-Signature=SEKRET",
)  # fmt: skip
SECRETS = ("SEKRET", "dTpTRUtSRVQ=")

WEBHOOK = {"type": "webhook", "url": "https://h.example/x"}
POSTGRES = {"type": "postgres", "database": "postgresql://u@127.0.0.1:1/d"}
LOOKUP = {"url": "https://h.example/x.csv", "key": "id"}
AVRO = {"type": "avro", "registry": "https://r.example"}
ICEBERG = {"type": "iceberg", "database": "s3://b/k", "catalog": "https://c.example/"}
KAFKA = {"type": "kafka", "brokers": "127.0.0.1:1", "topic": "copy"}
COPY = {**KAFKA, "table": "copy"}

#: Where a secret may be, as path and the fields around it, and its forms there.
FIELDS: dict[str, tuple[tuple[str, ...], Mapping[str, Any], tuple[str, ...]]] = {
    "Kafka": (("source", "credentials", "sasl.password"), {}, CREDENTIALS),
    "registry": (("source", "credentials", "schema.registry.password"), {"format": AVRO}, CREDENTIALS),
    "Kafka sink": (("into", "credentials", "sasl.password"), {"into": KAFKA}, CREDENTIALS),
    "database": (("into", "credentials", "password"), {"into": POSTGRES}, CREDENTIALS),
    "catalogue": (("into", "credentials", "catalog.token"), {"into": ICEBERG}, CREDENTIALS),
    "secret header": (("into", "credentials", "header.Cookie"), {"into": WEBHOOK}, CREDENTIALS),
    "header named username": (("into", "credentials", "header.username"), {"into": WEBHOOK}, CREDENTIALS),
    "secret address": (("into", "credentials", "url"), {"into": {"type": "webhook"}}, ("https://h.example/SEKRET", *CREDENTIALS)),
    "lookup": (("lookups", "l", "credentials", "token"), {"lookups": {"l": LOOKUP}}, CREDENTIALS),
    "header": (("into", "headers", "X-A"), {"into": WEBHOOK}, HEADERS),
    **{
        f"header {name}": (("into", "headers", name), {"into": WEBHOOK}, ("SEKRET", "${env:NOPE:SEKRET}"))
        for name in ("Authorization", "Cookie", "X-Api-Key", "X-Pass", "X-Pwd", "X-Sig", "X-Bearer")
    },
    "url": (("into", "url"), {"into": WEBHOOK}, tuple(f"https://h.example/x?{query}" for query in QUERIES)),
    "url's user": (("into", "url"), {"into": WEBHOOK}, ("https://u:SEKRET@h.example/x", "https://SEKRET@h.example/x")),
    "lookup's url": (("lookups", "l", "url"), {"lookups": {"l": LOOKUP}},
                     ("https://u:SEKRET@h.example/x.csv", *(f"https://h.example/x.csv?{query}" for query in QUERIES))),
    "database's address": (("into", "database"), {"into": POSTGRES},
                           ("postgresql://u:SEKRET@h/d", "host=h user=u password=SEKRET", "postgresql://u@h/d?password=SEKRET")),
    "catalogue's address": (("into", "catalog"), {"into": ICEBERG},
                            ("postgresql://u:SEKRET@h/d", "https://u:SEKRET@h/", "https://h/?token=SEKRET", "mysql://u:SEKRET@h/d")),
    "registry's address": (("format", "registry"), {"format": AVRO},
                           ("https://u:SEKRET@r", "u:SEKRET@r:8081", "https://r/?token=SEKRET")),
    "files": (("source", "files", "path"), {"source": {}, "into": COPY}, STORES),
    "files, short": (("source", "files"), {"source": {}, "into": COPY}, STORES),
    "source's lake": (("source", "lake", "database"), {"source": {"lake": {"type": "delta", "name": "t"}}, "into": COPY}, STORES),
    "lake": (("into", "database"), {"into": ICEBERG}, STORES),
    "Kafka's settings": (("source", "config", "sasl.password"), {}, ("SEKRET",)),
    "sink's settings": (("into", "config", "sasl.password"), {"into": KAFKA}, ("SEKRET",)),
    "token server": (("source", "config", "sasl.oauthbearer.token.endpoint.url"), {}, ("https://u:SEKRET@i/token",)),
}  # fmt: skip
CASES = [pytest.param(name, text, id=f"{name}: {text}") for name, (_, _, forms) in FIELDS.items() for text in forms]


def _fields(name: str, text: str) -> dict[str, Any]:
    """Return the fields of a definition with a text in one of its fields."""
    path, around, _ = FIELDS[name]
    into = {"table": "t", **around.get("into", {})}
    made = {"name": "p", "source": {"brokers": "127.0.0.1:1", "topic": "t"}, **around, "into": into}
    fields: dict[str, Any] = json.loads(json.dumps(made))  # a copy
    group = fields
    for part in path[:-1]:
        group = group.setdefault(part, {})
    group[path[-1]] = text
    return fields


def _hides(*texts: str) -> bool:
    return not any(secret in text for text in texts for secret in SECRETS)


def _told(error: BaseException) -> str:
    """Return everything that a log or a page may show of an error."""
    return "".join(traceback.format_exception(error)) + str(vars(error)) + repr(error)


def _statement(fields: dict[str, Any]) -> str:
    """Write the definition as a person would; nothing is judged."""

    def quoted(value: object) -> str:
        return "'" + (value if isinstance(value, str) else json.dumps(value)).replace("'", "''") + "'"

    source, into, kind = fields["source"], dict(fields["into"]), fields.get("format", {"type": "json"})
    files, lake = source.get("files"), source.get("lake")
    read_from = f"TABLE t IN delta {quoted(lake['database'])}" if lake else "KAFKA '127.0.0.1:1/t'"
    read_from = f"FILES {quoted(files if isinstance(files, str) else files['path'])}" if files else read_from
    clauses = [f"CREATE PIPELINE p AS LOAD DATA {read_from}"]
    clauses += [f"{key.upper()} {quoted(source[key])}" for key in ("config", "credentials") if key in source]
    for lookup in fields.get("lookups", {}).values():
        more = {key: value for key, value in lookup.items() if key not in ("url", "key")}
        clauses.append(f"LOOKUP l KEY (id) FROM URL {quoted(lookup['url'])} SETTINGS {quoted(more)}")
    place = f"IN {into.pop('type', 'duckdb')}" + (f" {quoted(into.pop('database'))}" if "database" in into else "")
    clauses += [f"INTO TABLE {into.pop('table')} {place}", f"FORMAT {kind['type']}"]
    clauses += [f"SCHEMA REGISTRY {quoted(kind['registry'])}"] if "registry" in kind else []
    clauses.insert(1, f"OPTIONS {quoted({'into': into})}")
    return "\n".join(clauses)


@pytest.mark.parametrize(("name", "text"), CASES)
def test_a_statement_is_rejected(name: str, text: str) -> None:
    statement = _statement(_fields(name, text))
    with pytest.raises(InvalidStatement) as caught:
        read(statement)
    assert _hides(_told(caught.value).replace(statement, "")), caught.value
    assert _hides(masked_statement(statement)), "the history of kpipe sql"
    path = FIELDS[name][0]
    if path[:2] in (("source", "credentials"), ("source", "config")):
        with pytest.raises(InvalidStatement) as caught:
            read(f"ALTER PIPELINE p SET {path[1].upper()} ::{path[2]} = '" + text.replace("'", "''") + "'")
        assert _hides(str(caught.value) + caught.value.excerpt)


def test_the_error_of_a_query_is_masked() -> None:
    """DuckDB quotes the word that it does not expect."""
    (query,) = read_all("SELECT token = SEKRET SEKRET SEKRET")
    assert isinstance(query, Query)
    with pytest.raises(InvalidStatement, match=r"unexpected \*{6}") as caught:
        queries._statement_type(query)
    assert _hides(str(caught.value) + caught.value.excerpt)


def _nested(fields: dict[str, Any]) -> dict[str, Any]:
    return fields


def _as_json(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: json.dumps(value) if isinstance(value, dict) else value for key, value in fields.items()}


@pytest.mark.parametrize(("name", "text"), CASES)
def test_rest_rejects_it(tmp_path: Path, name: str, text: str) -> None:
    for form in (texts, _nested, _as_json):
        parsed = parse(Worker(Home.at(tmp_path)), "p", {"connector.class": "kpipe", **form(_fields(name, text))})
        assert parsed.errors and parsed.pipeline is None
        assert _hides(json.dumps(parsed.errors), json.dumps(dict(parsed.config))), (parsed.errors, parsed.config)


@pytest.mark.parametrize(("name", "text"), CASES)
def test_what_shows_a_file_masks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    path = FIELDS[name][0]
    fields = _fields(name, from_statement(text) if "credentials" in path else text)
    try:
        component = SOURCE_COMPONENT if FIELDS[name][1].get("into") is COPY else COMPONENT
        pipeline = from_yaml(yaml.safe_dump({"type": component, "attributes": fields}))
    except InvalidPipeline as error:
        assert _hides(_told(error))
        with pytest.raises(ValidationError) as caught:  # as Dagster reads it
            KafkaPipeline.get_model_cls().model_validate(fields)
        assert _hides(_told(caught.value))
        return
    home = Home.at(tmp_path).make()
    home.save(pipeline)
    got = flat(masked(pipeline.to_dict()))
    visible = [json.dumps(masked(pipeline.to_dict())), json.dumps(got), json.dumps(summary(pipeline))]
    visible += [to_sql(pipeline), *table_dataset(pipeline, "t", home), topic_namespace(pipeline.source.bootstrap)]
    try:
        visible.append(open_destination(pipeline, home).describe())
    except KpipeError as error:
        visible.append(_told(error))
    assert _hides(*visible), [part for part in visible if not _hides(part)]
    # What GET returns, is PUT without a change.
    parsed = parse(Worker(home), "p", got)
    assert not parsed.errors and parsed.pipeline == pipeline


@pytest.mark.parametrize("text", STORES)
def test_an_object_stores_address_is_not_quoted_when_it_is_opened(tmp_path: Path, text: str) -> None:
    pipeline = Pipeline.model_validate(_fields("lake", "s3://b/k"))
    unchecked = pipeline.model_copy(update={"into": pipeline.into.model_copy(update={"type": "parquet", "database": text})})
    with pytest.raises(InvalidPipeline, match=r"into\.database: expected .*, found .*\*\*\*") as caught:
        open_destination(unchecked, Home.at(tmp_path))
    assert _hides(_told(caught.value))


@pytest.mark.parametrize("text", ["{{ env('A') }}", "Bearer {{ env('A') }}", "{{ file('/a') }}", "{{ env('A') }} {{ env('B') }}"])
@pytest.mark.parametrize("name", [name for name, (path, *_) in FIELDS.items() if "credentials" in path])
def test_references_are_stored_and_shown(tmp_path: Path, name: str, text: str) -> None:
    fields = _fields(name, text)
    pipeline = Pipeline.model_validate(fields)
    assert read(to_sql(pipeline)).pipeline == pipeline  # type: ignore[union-attr]
    parsed = parse(Worker(Home.at(tmp_path)), "p", flat(masked(pipeline.to_dict())))
    assert not parsed.errors and parsed.pipeline == pipeline
    assert read(_statement(fields)).pipeline.into.credentials == pipeline.into.credentials  # type: ignore[union-attr]
