"""The API server of a session, and the image that its pods run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resources.dev_broker.broker import LocalBroker
from tests.cluster.hosts import obstacle
from tests.kubernetes import built
from tests.kubernetes.control import Control
from tests.kubernetes.node import Image
from tests.kubernetes.site import IMAGE, Site


@pytest.fixture(scope="session")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    """A Kubernetes API server that runs."""
    why = obstacle()
    missing = [name for name in built.PROGRAMS if built.program(name) is None]
    if why or missing:
        pytest.skip(f"no pods can be run here: {why or f'there is no {missing[0]} -> make kubernetes'}")
    made = Control(tmp_path_factory.mktemp("control"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """The image of deploy/Containerfile, as it was built; with this checkout's code, if that is newer."""
    if not built.built():
        pytest.skip("the image has not been built -> make kubernetes")
    with built.image() as (root, config):
        for part in ("kpipe", "transforms", "resources", "kpipe_assets"):
            shutil.copytree(built.ROOT / part, root / "opt" / "kpipe" / part, dirs_exist_ok=True)
        yield Image(root, config)


@pytest.fixture
def site(control: Control, image: Image, kafka_broker: LocalBroker, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """`site()`: a pipeline of its own. Its pods end with the test."""
    made: list[Site] = []

    def make(**fields: Any) -> Site:
        one = Site.made(control, kafka_broker, tmp_path, {IMAGE: image}, **fields)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()
