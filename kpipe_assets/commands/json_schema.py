"""JSON schema of a pipeline's YAML, for editors: `python -m kpipe_assets.commands.json_schema` prints it."""

from __future__ import annotations

import json
import sys
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import COMPONENT, SOURCE_COMPONENT

__all__ = ["json_schema"]

_TEMPLATE = {"type": "string", "pattern": r"\{\{"}


def json_schema() -> dict[str, Any]:
    """Return the schema of a document with `type` and `attributes`. A template is valid for every number and choice."""
    attributes = Pipeline.model_json_schema(by_alias=True)
    definitions = attributes.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pipeline of kpipe",
        "type": "object",
        "properties": {"type": {"enum": [COMPONENT, SOURCE_COMPONENT]}, "attributes": _with_templates(attributes)},
        "required": ["type", "attributes"],
        "$defs": {name: _with_templates(item) for name, item in sorted(definitions.items())},
    }


def _with_templates(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_templates(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: value if key == "default" else _with_templates(value) for key, value in schema.items()}
    if schema.get("type") in ("integer", "number", "boolean") or "enum" in schema:
        kept = {key: changed.pop(key) for key in ("title", "default", "description") if key in changed}
        return {**kept, "anyOf": [changed, _TEMPLATE]}
    return changed


if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
