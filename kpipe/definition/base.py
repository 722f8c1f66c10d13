"""Base class of all parts of a definition."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Model"]


class Model(BaseModel):
    """A frozen pydantic model; unknown fields are errors, whose texts contain no values: they may be secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)
