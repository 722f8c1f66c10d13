"""What every part of a definition is: a value that refuses fields that it does not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Model"]


class Model(BaseModel):
    """A frozen pydantic model; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
