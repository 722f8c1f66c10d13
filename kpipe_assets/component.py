"""A pipeline as a Dagster component: YAML that makes a topic, a table, a sensor and checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import dagster as dg
from dagster.components.core.component_tree import TestComponentTree
from pydantic import BaseModel, model_validator

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import filled
from kpipe.errors import InvalidPipeline, KpipeError
from kpipe_assets.assets.load_errors import unloadable
from kpipe_assets.assets.proof_checks import table_checks
from kpipe_assets.assets.table_asset import table_asset, table_keys
from kpipe_assets.assets.topic_asset import topic_key, topic_names, topic_spec
from kpipe_assets.dagster_resources import real
from kpipe_assets.sensors.ingest_sensor import Pace, ingest_sensor
from kpipe_assets.sensors.topic_sensor import metadata_sensor
from kpipe_assets.validation import Needs, validate
from resources.home import Home
from resources.spark.driver.stager import version

__all__ = ["KafkaPipeline", "PipelineCatalog", "catalog", "pipeline_defs"]


def pipeline_defs(pipeline: Pipeline, home: Home, pace: Pace = Pace(), but: Collection[dg.AssetKey] = ()) -> dg.Definitions:  # noqa: B008
    """Everything of one pipeline but the resources.

    - each topic as a partitioned source asset `kafka/TOPIC`, but for those that another pipeline has brought
    - the table as an asset on the same partitions, with several topics on those of all
    - several tables as one asset each, materialized together
    - the sensor `NAME_ingest`, off until switched on
    - the sensor `NAME_metadata`, on: partitions and watermarks
    - checks: complete, mirror, lag, schema, dead_letters

    Raises:
        InvalidPipeline, NotAvailable: the definition cannot be run here.
    """
    with home.placing(pipeline):
        validate(pipeline, home, Needs.FIELDS)  # each of Dagster's processes loads all definitions
    table = table_asset(pipeline, home, version(pipeline))
    specs = [topic_spec(pipeline, topic) for topic in topic_names(pipeline, home) if topic_key(topic) not in but]
    return dg.Definitions(
        assets=[*specs, table],
        asset_checks=[table_checks(pipeline, home)],
        sensors=[ingest_sensor(pipeline, home, table, pace), metadata_sensor(pipeline, home, pace)],
    )


class _Attributes(Pipeline):
    """The attributes as they stand in the YAML of a Dagster project, templates and all."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        try:
            return filled(data)
        except InvalidPipeline as error:
            raise ValueError(str(error)) from error


class KafkaPipeline(dg.Component, Pipeline):
    """A Kafka topic into a table, exactly once.

    Creates the topic as a partitioned source asset, the table as an asset on the same partitions, sensors for its
    metadata and for continuous ingest, and asset checks that prove completeness. The fields are those of a file
    KPIPE_HOME/pipelines/NAME.yaml; as a Python object it is a pipeline as any other, for `ingest` and `Home.save`.
    """

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """For `dg list components`."""
        return dg.ComponentTypeSpec(description=(cls.__doc__ or "").strip().splitlines()[0])

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """The attributes; Dagster names file, line and field of what does not fit."""
        return _Attributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> KafkaPipeline:
        """A component from its YAML. Templates `{{ env('NAME') }}` are filled in, but for credentials."""
        assert isinstance(attributes, Pipeline)
        return cls.model_validate(attributes.model_dump(by_alias=True, exclude_unset=True))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """See the class. Of several pipelines on one topic, the first in the project brings the topic."""
        home, brought = Home.from_env().check(), set[dg.AssetKey]()
        for other in _pipelines(context):
            if other.name == self.name:
                break
            brought |= {topic_key(topic) for topic in topic_names(other, home)}
        many = Pace().of_many(len(_pipelines(context)))
        return pipeline_defs(self, home, many, but=brought)


class PipelineCatalog(dg.Component, dg.Resolvable, dg.Model):
    """All pipelines of a home: every KPIPE_HOME/pipelines/NAME.yaml, and the resources that they need.

    Attributes:
        home: the folder; KPIPE_HOME by default.
    """

    home: str | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """See the class."""
        home = Home.at(self.home) if self.home else Home.from_env()
        brought = {topic_key(topic) for other in _pipelines(context) for topic in topic_names(other, home)}
        return catalog(home, but=brought)


def _pipelines(context: dg.ComponentLoadContext) -> list[KafkaPipeline]:
    """The pipelines that are components of the same project, in the order in which it is read."""
    tree = context.component_tree
    # A component that is built by itself, in Python: its tree would take the current folder for a project, and read it.
    return [] if isinstance(tree, TestComponentTree) else tree.get_all_components(KafkaPipeline)


def catalog(home: Home, pace: Pace = Pace(), but: Collection[dg.AssetKey] = ()) -> dg.Definitions:  # noqa: B008
    """Definitions of all pipelines of a home, with the real resources.

    Two pipelines may share a topic. What cannot be loaded is shown as such, and takes nothing else away.

    Args:
        home: where the definitions lie.
        pace: of the sensors.
        but: topics that somebody else has brought.
    """
    pipelines: dict[dg.AssetKey, Pipeline] = {}
    problems: dict[str, Exception] = {}
    for pipeline in sorted(_read(home, problems), key=lambda item: (item.name != item.into.table, item.name)):
        keys = table_keys(pipeline)
        theirs = next((key for key in keys if key in pipelines), None)
        if theirs is not None:
            problems[pipeline.name] = KpipeError(
                f"pipeline {pipeline.name}: its table {theirs.path[-1]} is the asset of pipeline {pipelines[theirs].name}",
                f"give it another table; without Dagster: kpipe run {pipeline.name}",
            )
        else:
            pipelines.update(dict.fromkeys(keys, pipeline))
    topics, parts, pace = set(but), [], pace.of_many(len(pipelines))
    for pipeline in {pipeline.name: pipeline for pipeline in pipelines.values()}.values():
        try:
            parts.append(pipeline_defs(pipeline, home, pace, topics))
            topics |= {topic_key(topic) for topic in topic_names(pipeline, home)}
        except (KpipeError, dg.DagsterError) as error:
            problems[pipeline.name] = error
    taken = {key for key, pipeline in pipelines.items() if pipeline.name not in problems}
    return dg.Definitions.merge(dg.Definitions(resources=real(home)), unloadable(home, problems, taken), *parts)


def _read(home: Home, problems: dict[str, Exception]) -> Iterator[Pipeline]:
    for name in home.names():
        try:
            yield home.pipeline(name)
        except KpipeError as error:
            problems[name] = error
