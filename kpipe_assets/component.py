"""A pipeline as a Dagster component: from YAML to topics, tables, sensors and asset checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import dagster as dg
from dagster.components.core.component_tree import TestComponentTree
from pydantic import BaseModel, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.secret_values import MASK, may_hide
from kpipe.definition.yaml_codec import filled
from kpipe.errors import InvalidPipeline, KpipeError
from kpipe_assets.assets.load_errors import unloadable
from kpipe_assets.assets.maintenance_job import maintenance_defs
from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.table_checks import check_assets, table_checks
from kpipe_assets.assets.topic_asset import source_keys, source_specs
from kpipe_assets.assets.topic_table_assets import topic_table_specs
from kpipe_assets.dagster_resources import real
from kpipe_assets.runs.load_problems import note_load_problems
from kpipe_assets.sensors.ingest_sensor import Pace, ingest_sensor
from kpipe_assets.sensors.topic_sensor import metadata_sensor
from kpipe_assets.validation import Needs, validate
from resources.home import Home
from resources.spark.driver.definition_version import version

__all__ = ["KafkaPipeline", "KafkaSource", "PipelineCatalog", "catalog", "pipeline_defs"]


def pipeline_defs(pipeline: Pipeline, home: Home, pace: Pace = Pace(), but: Collection[dg.AssetKey] = ()) -> dg.Definitions:  # noqa: B008
    """Build the definitions of one pipeline, without resources.

    - each topic as a partitioned source asset `kafka/TOPIC`, except those in `but`
    - the table as an asset with the same partitions; with several topics, with the partitions of all
    - several tables as one asset each, materialized together; with a table for each topic, one asset each for those that the
      home has seen, beside the asset `pipelines/NAME` that has the runs
    - the sensor `NAME_ingest`, stopped by default
    - the sensor `NAME_metadata`, running by default: partitions and watermarks
    - checks: complete, published, lag, schema, dead_letters
    - with `into.maintenance`, the job `NAME_maintenance`, and its schedule

    Args:
        pipeline: the definition.
        home: KPIPE_HOME.
        pace: intervals of the sensors.
        but: assets of topics that another pipeline defines.

    Raises:
        InvalidPipeline, NotAvailable: the pipeline cannot run here.
    """
    with home.placing(pipeline):
        validate(pipeline, home, Needs.FIELDS)  # only fields: every Dagster process loads all definitions
    table = table_asset(pipeline, home, version(pipeline))
    specs = [spec for spec in source_specs(pipeline, home) if spec.key not in but]
    made = dg.Definitions(
        assets=[*specs, table, *topic_table_specs(pipeline, home)],
        asset_checks=[table_checks(pipeline, home)],
        sensors=[ingest_sensor(pipeline, home, table, pace), metadata_sensor(pipeline, home, pace)],
    )
    return made if pipeline.into.maintenance is None else dg.Definitions.merge(made, maintenance_defs(pipeline, home))


class _Attributes(Pipeline):
    """The attributes in the YAML of a Dagster project, before templates are resolved."""

    @model_validator(mode="wrap")
    @classmethod
    def _fill(cls, data: Any, handler: ModelWrapValidatorHandler[_Attributes]) -> _Attributes:
        try:
            return handler(filled(data))
        except InvalidPipeline as error:
            raise ValueError(str(error)) from error
        except ValidationError as error:  # Dagster shows the invalid values, which may be secrets
            raise ValidationError.from_exception_data(error.title, list(map(_without_secret, error.errors()))) from None


def _without_secret(error: ErrorDetails) -> InitErrorDetails:
    hides = may_hide(tuple(map(str, error["loc"]))) or error["type"] == "extra_forbidden"
    given = error["input"] if not hides and isinstance(error["input"], str | int | float) else MASK
    return InitErrorDetails(type=error["type"], loc=error["loc"], input=given, ctx=error.get("ctx", {}))


class KafkaPipeline(dg.Component, Pipeline):
    """Load a Kafka topic into a table, exactly once.

    Creates the topic as a partitioned source asset, and the table as an asset with the same partitions. Sensors update
    metadata and run continuous ingest; asset checks prove completeness. The fields are those of
    KPIPE_HOME/pipelines/NAME.yaml. In Python, pass the object to `ingest` or `Home.save` as any other pipeline.
    """

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description that `dg list components` shows."""
        return dg.ComponentTypeSpec(description=(cls.__doc__ or "").strip().splitlines()[0])

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return the model of the attributes. Dagster reports file, line and field of an invalid one."""
        return _Attributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> KafkaPipeline:
        """Create a component from YAML. Templates `{{ env('NAME') }}` are resolved, except those of credentials."""
        assert isinstance(attributes, Pipeline)
        return cls.model_validate(attributes.model_dump(by_alias=True, exclude_unset=True))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions; see the class. If pipelines share a topic, the first one in the project defines it."""
        home, defined = Home.from_env().check(), set[dg.AssetKey]()
        for other in _pipelines(context):
            if other.name == self.name:
                break
            defined |= {*source_keys(other, home)}
        many = Pace().of_many(len(_pipelines(context)))
        return pipeline_defs(self, home, many, but=defined)


class KafkaSource(KafkaPipeline):
    """Write files or a table to a Kafka topic, exactly once.

    Creates the files or the table as a source asset, and the topic as an asset with a partition for each file. Sensors, checks
    and fields are those of `KafkaPipeline`, with `source.files`, `source.table`, `source.lake` or `source.http`, and
    `into.type: kafka`.
    """

    @model_validator(mode="after")
    def _reads_files(self) -> KafkaSource:
        if self.source.reads_topics:
            fields = "source.files, source.table, source.lake or source.http"
            msg = f"{fields} is missing: a pipeline of topics is a kpipe_assets.KafkaPipeline"
            raise ValueError(msg)
        return self


class PipelineCatalog(dg.Component, dg.Resolvable, dg.Model):
    """Load every KPIPE_HOME/pipelines/NAME.yaml, with the resources of these pipelines.

    Attributes:
        home: the folder; default: KPIPE_HOME.
    """

    home: str | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions; see the class."""
        home = Home.at(self.home) if self.home else Home.from_env()
        defined = {key for other in _pipelines(context) for key in source_keys(other, home)}
        return catalog(home, but=defined)


def _pipelines(context: dg.ComponentLoadContext) -> list[KafkaPipeline]:
    """List the pipelines that are components of the same project, in load order."""
    tree = context.component_tree
    # A component that Python code builds outside of a project: its tree would load the current folder as one.
    return [] if isinstance(tree, TestComponentTree) else tree.get_all_components(KafkaPipeline)


def catalog(home: Home, pace: Pace = Pace(), but: Collection[dg.AssetKey] = ()) -> dg.Definitions:  # noqa: B008
    """Build the definitions of all pipelines of a home, with production resources.

    Two pipelines may share a topic. A pipeline that cannot be loaded becomes a failed asset check; the others load. The home
    records the reason: such a pipeline is not `running` when it is started.

    Args:
        home: KPIPE_HOME.
        pace: intervals of the sensors.
        but: assets of topics that are defined elsewhere.
    """
    pipelines: dict[dg.AssetKey, Pipeline] = {}
    problems: dict[str, Exception] = {}
    for pipeline in sorted(_read(home, problems), key=lambda item: (item.name != item.into.table, item.name)):
        keys = check_assets(pipeline, home)
        taken = next((key for key in keys if key in pipelines), None)
        if taken is not None:
            problems[pipeline.name] = KpipeError(
                f"pipeline {pipeline.name}: its table {taken.path[-1]} is the asset of pipeline {pipelines[taken].name}",
                f"change into.table, or run it without Dagster: kpipe run {pipeline.name}",
            )
        else:
            pipelines.update(dict.fromkeys(keys, pipeline))
    topics, parts, pace = set(but), [], pace.of_many(len(pipelines))
    for pipeline in {pipeline.name: pipeline for pipeline in pipelines.values()}.values():
        try:
            parts.append(pipeline_defs(pipeline, home, pace, topics))
            topics |= {*source_keys(pipeline, home)}
        except (KpipeError, dg.DagsterError) as error:
            problems[pipeline.name] = error
    note_load_problems(home, problems)
    loaded = {key for key, pipeline in pipelines.items() if pipeline.name not in problems}
    return dg.Definitions.merge(dg.Definitions(resources=real(home)), unloadable(home, problems, loaded), *parts)


def _read(home: Home, problems: dict[str, Exception]) -> Iterator[Pipeline]:
    for name in home.names():
        try:
            yield home.pipeline(name)
        except KpipeError as error:
            problems[name] = error
