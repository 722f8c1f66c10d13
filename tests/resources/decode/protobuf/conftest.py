"""Ways in which a Protobuf message is read."""

from __future__ import annotations

import pytest

from resources.decode.protobuf import decoder


@pytest.fixture(params=["compiled", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of reading."""
    if request.param == "plain":
        monkeypatch.setattr(decoder, "native_protobuf", lambda _: None)
    return str(request.param)
