"""Everything below this folder talks to a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resources.java import JavaHome
from tests.broker.node import Node
from tests.faults.proxy import Proxy, pass_

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, so that `-m 'not broker'` leaves them out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.broker)


@pytest.fixture(scope="session")
def breakable(
    java: JavaHome, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Node, Proxy]]:
    """A node that tests may stop and damage, and a proxy: clients that begin there are never told another address."""
    with Proxy() as proxy:
        proxy.upstream = port = free_port()
        listeners = f"PROXIED://127.0.0.1:{port}"
        plain, controller = free_port(), free_port()
        node = Node(
            tmp_path_factory.mktemp("breakable"),
            plain,
            controller,
            {
                "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},{listeners}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},PROXIED://{proxy.address}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
            },
        )
        try:
            yield node.start(), proxy
        finally:
            node.stop()


@pytest.fixture
def node(breakable: tuple[Node, Proxy]) -> Node:
    """A node to stop and damage; it runs again when the test is over."""
    return breakable[0]


@pytest.fixture
def proxy(breakable: tuple[Node, Proxy]) -> Iterator[Proxy]:
    """The way to that node, as long as the test leaves it in order."""
    breakable[1].now(pass_())
    yield breakable[1]
    breakable[1].now(pass_())
