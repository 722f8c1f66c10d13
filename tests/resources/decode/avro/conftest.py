"""Ways in which an Avro record is read."""

from __future__ import annotations

import pytest

from resources.decode.avro import decoder as avro_format


@pytest.fixture(params=["compiled", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of reading."""
    if request.param == "plain":
        monkeypatch.setattr(avro_format, "native_avro", lambda _: None)
    return str(request.param)
