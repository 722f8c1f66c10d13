"""What the supervisor tells Dagster's processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpipe_assets.dagster_server.supervisor import Supervisor


def test_the_code_server_puts_no_folder_of_a_package_on_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster imports from the working directory first: `metrics` there would hide another package of this name."""
    said: list[str] = []
    monkeypatch.setattr(Supervisor, "_start", lambda self, name, *arguments, **more: said.extend(arguments))
    Supervisor(tmp_path, "127.0.0.1", 1, 0, "kpipe_assets.definitions")._code_server()
    folder = Path(said[said.index("--working-directory") + 1])
    assert (folder / "kpipe_assets" / "__init__.py").is_file()
    assert not (folder / "__init__.py").exists()
