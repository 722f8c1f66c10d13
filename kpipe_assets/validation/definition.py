"""What a definition says by itself: fields that do not go together, settings, programs, lookups, the kind of destination."""

from __future__ import annotations

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import resolve
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.interfaces import Keyed
from kpipe.tables.multi_table import paired, targets
from kpipe.tables.upsert import KeyRule
from kpipe_assets.validation.case import Case
from resources.destinations import open_destination

__all__ = ["check_available", "check_destination", "check_lookups", "check_program", "check_source"]


def check_available(pipeline: Pipeline) -> None:
    """Refuse what the model knows and this version cannot do yet.

    Raises:
        NotAvailable: names the field.
    """
    errors = pipeline.errors
    refused: dict[str, tuple[bool, tuple[str, ...]]] = {
        "select beside key_format": (
            any(part.select is not None for part in targets(pipeline)) and pipeline.key_format is not None,
            ("key_format", "type"),
        ),
    }
    if any(KeyRule.of(part) is not None for part in targets(pipeline)):
        mode = pipeline.transform.mode if pipeline.transform is not None else "map"
        # Such rows have no offset.
        refused[f"rows with a key (into.key ...) from a program with mode: {mode}"] = mode != "map", ("transform",)
        again = pipeline.delivery == "at_least_once" and pipeline.into.on_conflict == "error"
        named = "delivery: at_least_once where a key that is there is an error"
        refused[named] = again and errors.duplicate_key == "fail", ("delivery",)
    for name, (wanted, field) in refused.items():
        if wanted:
            raise NotAvailable(
                f"pipeline {pipeline.name}: {name} is not available in this version", "see CHANGELOG.md"
            ).about(*field)  # fmt: skip
    if pipeline.format.type == "raw" and pipeline.columns:
        raise NotAvailable(
            f"pipeline {pipeline.name}: columns with format: raw", "raw has key and value; remove `columns`"
        ).about("columns")  # fmt: skip
    lines = pipeline.format.type == "csv" and (pipeline.format.skip_lines > 0 or pipeline.format.line_end != "\n")
    if pipeline.transform is not None and lines:
        raise NotAvailable(
            f"pipeline {pipeline.name}: format.skip_lines or format.line_end with a program",
            "a program writes a row a line; let it leave out what is not wanted",
        ).about("format", "skip_lines" if pipeline.format.skip_lines else "line_end")


def check_source(case: Case) -> None:
    """Whether a client of Kafka and one of the registry can have these settings; variables need not be set yet."""
    from resources.kafka.client_config import client_config, registry_access
    from resources.kafka.topic_metadata import KafkaTopics
    from resources.schema_registry.config import check_registry

    source, environ = case.pipeline.source, case.environ
    try:
        client_config(source, environ)
    except InvalidPipeline as error:
        group = "credentials" if error.what.startswith("source.credentials") else "config"
        named = [key for key in (*source.config, *source.credentials) if f" {key} " in f" {error.what} ".replace(":", " ")]
        word = max(named, key=len, default="")
        error.about("source", group, *([word] if word else []), word=word)
        raise
    KafkaTopics(source.model_copy(update={"credentials": {}, "config": {}}))
    access = registry_access(source, environ)
    for name, kind in (("format", case.pipeline.format), ("key_format", case.pipeline.key_format)):
        try:
            check_registry(kind, access)
        except InvalidPipeline as error:
            error.about(name, "registry")
            raise


def check_program(case: Case) -> None:
    """Whether the program can be run, and files with schemas be read."""
    from resources.spark.driver.stager import version

    version(case.pipeline)


def check_destination(case: Case) -> None:
    """Whether there is such a destination, and it can do what is asked of it. Connects to nothing."""
    into = case.pipeline.into
    place = open_destination(
        case.pipeline.model_copy(update={"into": into.model_copy(update={"credentials": _filled(into.credentials)})}), case.home
    )
    for at, (part, one) in enumerate(paired(case.pipeline, place)):
        if KeyRule.of(part) is not None and not isinstance(one, Keyed):
            field = ("also", str(at - 1), "on_conflict") if at else ("into", "on_conflict")
            raise NotAvailable(
                f"pipeline {part.name}: {one.describe()} knows no keys",
                "leave out into.key and into.on_conflict, and pick the latest row of each key in a view over the table",
            ).about(*field)


def check_lookups(case: Case) -> None:
    """Whether lookups are asked for columns that they can have; those that are files are read."""
    from resources.lookups.loader import Lookups
    from resources.spark.driver.stager import asked

    chosen = asked(case.selections)
    found = Lookups(case.pipeline, chosen, environ=case.environ)
    if all(case.pipeline.lookups[call.lookup].path is not None for call in chosen.calls):
        case.lookups = found.of_batch("validation")
    else:
        found.check_files()


def _filled(credentials: dict[str, str]) -> dict[str, str]:
    """Credentials whose variables are set; the others need not be before the pipeline runs."""
    found = {}
    for key, template in credentials.items():
        try:
            found[key] = resolve(template)
        except InvalidPipeline:
            found[key] = "https://example.invalid/" if key == "url" else "x"
    return found
