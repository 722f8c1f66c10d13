"""A definition is read with its files once: what is staged with it has its version, whatever the files become."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from kpipe.definition.pipeline import Pipeline
from resources.home import Home
from resources.spark.driver.definition_version import ResolvedPipeline, version
from resources.spark.driver.sample_stager import LocalStager


def _describe(path: Path, field: str) -> None:
    file = FileDescriptorProto(name="m.proto", package="t", syntax="proto3")
    file.message_type.add(name="M").field.add(name=field, number=1, type=3, label=1)
    path.write_bytes(FileDescriptorSet(file=[file]).SerializeToString())


def test_schema_and_program_stay_those_that_were_read(tmp_path: Path) -> None:
    schema, program, home = tmp_path / "m.desc", tmp_path / "program.sh", Home(tmp_path / "home").make()
    _describe(schema, "a")
    program.write_text("#!/bin/sh\nexec cat\n")
    program.chmod(0o755)
    pipeline = Pipeline.model_validate(
        {
            "name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"},
            "format": {"type": "protobuf", "descriptors": str(schema), "message": "t.M"},
            "transform": {"program": str(program), "stdin": "length-prefixed"},
        }
    )  # fmt: skip
    resolved, before = ResolvedPipeline.of(pipeline, home), version(pipeline)
    _describe(schema, "b")
    assert version(pipeline) != before
    program.write_text("#!/bin/sh\nexec tac\n")
    stager = LocalStager(resolved, home)
    assert stager.version == resolved.version == before
    assert stager._pipeline.format == resolved.pipeline.format and resolved.pipeline.format.descriptors is None
    spec = stager._spec()
    assert spec is not None and Path(spec.file).read_text() == "#!/bin/sh\nexec cat\n"
