"""`source.files`: short and long form, which files can grow, the folder that contains them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from kpipe.definition.source import Files, Source
from kpipe.definition.yaml_codec import from_yaml, to_yaml
from kpipe.errors import InvalidPipeline
from tests.cases import each_case

FIELDS = {"name": "p", "source": {"files": "/in/*"}, "into": {"type": "kafka", "brokers": "h:1", "topic": "t"}}


def test_yaml_names_the_component_of_files_and_back() -> None:
    pipeline = from_yaml(yaml.safe_dump({"type": "kpipe_assets.KafkaSource", "attributes": FIELDS}))
    assert (pipeline.source.files, pipeline.source.multi_topic, str(pipeline.source)) == (Files(path="/in/*"), True, "/in/*")
    assert to_yaml(pipeline).startswith("type: kpipe_assets.KafkaSource\n")
    assert from_yaml(to_yaml(pipeline)) == pipeline


@each_case(
    ("component", "source"),
    [("kpipe_assets.KafkaPipeline", {"files": "/in/*"}), ("kpipe_assets.KafkaSource", {"brokers": "h:1", "topic": "t"})],
)
def test_another_component_is_refused(component: str, source: dict[str, Any]) -> None:
    with pytest.raises(InvalidPipeline, match=f"type is '{component}'"):
        from_yaml(yaml.safe_dump({"type": component, "attributes": {**FIELDS, "source": source}}))


@each_case(
    ("path", "root"),
    [
        ("/in/*.csv", "/in"),
        ("/in/a/b.csv", "/in/a"),
        ("/in/**/x[0-9].csv", "/in"),
        ("/*.csv", "/"),
        ("s3://bucket/a/*/b", "s3://bucket/a"),
        ("s3://bucket/*.csv", "s3://bucket"),
    ],
)
def test_the_folder_is_the_path_up_to_the_first_wildcard(path: str, root: str) -> None:
    assert Files(path=path).root == root


@each_case(
    "path",
    [
        "s3://bucket/key=a/token=b/part-?.jsonl", "s3://bucket/a?b=1&c=[0-9].jsonl", "s3://bucket/user@example.com/x:y/*.jsonl",
        "abfss://c@account.dfs.core.windows.net/in/x@y-?.jsonl", "abfss://c/in/*", "/data/a:b@c/x?sig=1", "/data/a@b?token=[12]",
        "s3://arn:aws:s3:eu-west-1:1:accesspoint:a/x",
    ],
)  # fmt: skip
def test_patterns_that_resemble_a_secret_stay_valid(path: str) -> None:
    assert Files(path=path).path == path


@each_case(
    "path",
    [
        "s3://AKIAX:SEKRET@bucket/in/*.jsonl", "s3://SEKRET@bucket/in/*.jsonl", "gs://u:SEK/RET@bucket/in/*",
        "az://c/in/*.jsonl?sv=1&sig=SEKRET", "abfss://u:SEKRET@account.dfs.core.windows.net/in/x",
        "s3://b/x?X-Amz-Algorithm=a&X-Amz-Signature=SEKRET", "AKIAX:SEKRET@bucket/in", "s3:/AKIAX:SEKRET@b/*",
    ],
)  # fmt: skip
def test_an_address_with_a_secret_is_refused_and_shown_nowhere(path: str) -> None:
    for source in ({"files": path}, {"files": {"path": path}}, {"lake": {"type": "delta", "database": path, "name": "t"}}):
        fields = {"type": "kpipe_assets.KafkaSource", "attributes": {**FIELDS, "source": source}}
        with pytest.raises(InvalidPipeline, match=r"source\.credentials") as caught:
            from_yaml(yaml.safe_dump(fields))
        assert "RET" not in str(caught.value) + repr(caught.value)


@each_case(
    ("fields", "growing"),
    [
        ({"path": "/in/*"}, True),
        ({"path": "/in/*", "grows": False}, False),
        ({"path": "/in/*", "type": "parquet"}, False),
        ({"path": "s3://b/in/*"}, False),
    ],
)
def test_only_lines_on_a_disk_grow(fields: dict[str, Any], growing: bool) -> None:
    assert Files.model_validate(fields).growing is growing


@each_case(
    ("source", "words"),
    [
        ({"files": "in/*"}, "not an absolute path"),
        ({"files": "/in/"}, "expected the names of files"),
        ({"files": "s3://*/x"}, "not an absolute path or an object's name"),
        ({"files": "http://host/x"}, "not an absolute path or an object's name"),
        ({"files": "/in//*"}, "two slashes in a row"),
        ({"files": "/in/[az-a].csv"}, "[az-a] is not a set of characters"),
        ({"files": "/in/\n*"}, "control characters"),
        ({"files": {"path": "s3://b/x", "grows": True}}, "only files of lines on a disk can grow"),
        ({"files": {"path": "/x", "type": "parquet", "header": True}}, "only files of lines have a first line"),
        ({"files": "/x", "topic": "t"}, "exactly one of topic, topics, topic_pattern, files"),
        ({"files": "/x", "brokers": "h:1"}, "brokers belongs to topics, not to files"),
        ({"files": "/x", "group": "g"}, "group belongs to topics, not to files"),
        ({"files": "/x", "start": "latest"}, "start belongs to topics, not to files"),
        ({"topic": "t"}, "brokers is missing"),
    ],
)
def test_what_does_not_fit_is_refused(source: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Source.model_validate(source)
    assert words in str(caught.value)
