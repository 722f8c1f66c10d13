"""A real `kpipe ui` against pages of other origins, other users of the machine, and run config that replaces settings."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from kpipe.definition.pipeline import Into, Pipeline, Source
from kpipe_assets.dagster_server.instance import make_storage, prepare
from resources.home import Home
from tests.commandline import contents
from tests.kpipe_assets.dagster_ui import Ui, query, running_ui

pytestmark = pytest.mark.slow

CANARY = "in-no-helper"
NEVER = "127.0.0.1:1"  # no run gets so far as to ask these brokers
SELECTOR = {
    "repositoryLocationName": "kpipe",
    "repositoryName": "__repository__",
    "pipelineName": "__ASSET_JOB",
    "assetSelection": [{"path": ["orders"]}],
}
LAUNCH = """mutation Hostile($config: RunConfigData!, $selector: JobOrPipelineSelector!) {
  launchPipelineExecution(executionParams: {mode: "default", runConfigData: $config, selector: $selector}) {
    __typename
    ... on RunConfigValidationInvalid { errors { message } }
  }
}"""


def home_with_a_pipeline(path: Path) -> Home:
    home = Home(path).make()
    home.save(Pipeline(name="orders", source=Source(brokers=NEVER, topic="orders"), into=Into(table="orders")))
    return home


class Thief:
    """Tries to listen on the UI's port, from before its start on, and keeps what clients send there."""

    def __init__(self, address: str, port: int) -> None:
        self.tries, self.stolen, self._port = 0, b"", port
        self._socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((address, port))
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._steal)
        self._thread.start()

    def _steal(self) -> None:
        with self._socket:
            while not self._end.wait(0.01):
                if not self.tries and not self._is_taken():
                    continue  # its chance comes once `kpipe ui` has chosen the port
                self.tries += 1
                try:
                    self._socket.listen()
                    self._socket.settimeout(0.2)
                    with self._socket.accept()[0] as client:
                        self.stolen += client.recv(65536)
                except OSError:
                    continue

    def _is_taken(self) -> bool:
        words = [process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"])]
        return any("kpipe_assets.dagster_server.supervisor" in given and str(self._port) in given for given in words)

    def end(self) -> None:
        self._end.set()
        self._thread.join()


@pytest.fixture(scope="module")
def port(free_port: Callable[[], int]) -> int:
    return free_port()


@pytest.fixture(scope="module")
def thief(port: int) -> Iterator[Thief]:
    started = Thief("127.0.0.1", port)
    yield started
    started.end()


@pytest.fixture(scope="module")
def ui(port: int, thief: Thief, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    home = home_with_a_pipeline(tmp_path_factory.mktemp("access") / "home")
    with running_ui(home, port, "orders", NEVER, KAFKA_PASSWORD=CANARY) as running:
        yield running


class Client:
    """Sends what a page, a script or another user would."""

    def __init__(self, ui: Ui) -> None:
        self.host = ui.address.removeprefix("http://")
        self.bearer = {"Authorization": f"Bearer {ui.token}"}

    def send(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection(self.host, timeout=600)
        try:
            connection.putrequest(method, path, skip_host=True)
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            for name, value in {"Host": self.host, **named, "Content-Length": str(len(body or ""))}.items():
                connection.putheader(name, value)
            connection.endheaders((body or "").encode())
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace"), answer.headers
        finally:
            connection.close()

    def upgrade(self, **headers: str) -> int:
        """Status of a websocket's handshake on /graphql."""
        given = {"Host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines = ["GET /graphql HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        lines += [f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}", "Sec-WebSocket-Protocol: graphql-ws"]
        lines += [f"{name}: {value}" for name, value in given.items()]
        host, _, port = self.host.rpartition(":")
        with socket.create_connection((host, int(port)), 300) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            return int(connection.recv(64).split()[1])


@pytest.fixture(scope="module")
def client(ui: Ui) -> Client:
    return Client(ui)


def test_what_a_page_of_another_origin_can_send_is_refused(ui: Ui, client: Client) -> None:
    json_type = {"Content_Type": "application/json"}
    switch_on = json.dumps({"query": query("Start"), "variables": {"sensor": "orders_ingest"}})
    repository = 'repositoryLocationName:"kpipe",repositoryName:"__repository__"'
    by_get = f'query=mutation{{startSensor(sensorSelector:{{{repository},sensorName:"orders_ingest"}}){{__typename}}}}'
    hostile: list[tuple[int, str, str, dict[str, str]]] = [
        (405, "GET", f"/graphql?{by_get}", {}),
        (405, "GET", f"/graphql?{by_get}", {"Origin": f"http://{client.host}"}),
        (415, "POST", "/graphql", {"Content_Type": "text/plain"}),
        (415, "POST", f"/graphql?{by_get}", {"Content_Type": "application/x-www-form-urlencoded"}),
        (415, "POST", "/graphql", {"Content_Type": "application/graphql"}),
        (403, "POST", "/graphql", {**json_type, "Origin": "https://evil.example"}),
        (403, "POST", "/graphql", {**json_type, "Origin": "null"}),
        (403, "POST", "/graphql", {**json_type, "Sec_Fetch_Site": "cross-site"}),
        (403, "POST", "/graphql", {**json_type, "Sec_Fetch_Site": "same-site"}),
        (403, "POST", "/graphql", {**json_type, "Host": "evil.example"}),
        (403, "OPTIONS", "/graphql", {"Origin": "https://evil.example"}),
        (415, "POST", "/report_asset_materialization/orders", {}),
        (403, "GET", "/", {"Host": "evil.example"}),
    ]
    for status, method, path, headers in hostile:
        found, body, answered = client.send(method, path, switch_on, **headers, **client.bearer)
        assert found == status, (method, path, headers, body)
        assert "errors" in json.loads(body)
        assert "access-control-allow-origin" not in answered
    assert client.upgrade(Origin="https://evil.example", **client.bearer) == 403
    assert client.upgrade(Host="evil.example", **client.bearer) == 403
    assert client.upgrade(Sec_Fetch_Site="cross-site", **client.bearer) == 403
    assert client.upgrade() == 401
    assert client.upgrade(Origin=f"http://{client.host}", **client.bearer) == 101
    sensors = (
        f"{{sensorsOrError(repositorySelector: {{{repository}}}) {{... on Sensors {{results {{name sensorState {{status}}}}}}}}}}"
    )
    found, body, _ = client.send("POST", "/graphql", json.dumps({"query": sensors}), **json_type, **client.bearer)
    states = {one["name"]: one["sensorState"]["status"] for one in json.loads(body)["data"]["sensorsOrError"]["results"]}
    assert states["orders_ingest"] == "STOPPED"


def test_nobody_else_listens_on_the_port_while_the_ui_starts(ui: Ui, port: int, thief: Thief) -> None:
    assert ui.address == f"http://127.0.0.1:{port}"
    assert thief.tries
    assert thief.stolen == b""


def test_every_route_of_dagsters_asks_for_the_token(client: Client) -> None:
    from dagster_webserver.webserver import DagsterWebserver

    routes = {route.path for route in _routes(DagsterWebserver) if hasattr(route, "path")}
    known = {"/server_info", "/dagit_info", "/graphql", "/logs/{path:path}", "/notebook", "/dagit/notebook", "/"}
    known |= {f"/report_asset_{what}/{{asset_key:path}}" for what in ("materialization", "check", "observation")}
    known |= {"/download_debug/{run_id:str}", "/{path:path}"}
    assert known <= routes
    for path in routes:
        concrete = re.sub(r"\{[^}]*\}", "x", path)
        status, body, _ = client.send("GET", concrete, Accept="text/html")
        assert status == 401, concrete
        assert "open the address that `kpipe ui` printed" in body
        if path in ("/graphql", *(known - {"/", "/{path:path}"})):
            status, body, _ = client.send("POST", concrete, "{}", Content_Type="application/json")
            assert status == 401, concrete


def _routes(server: Any) -> list[Any]:
    bare = object.__new__(server)
    bare._app_path_prefix = ""
    return list(bare.build_routes())


def test_the_printed_address_logs_a_browser_in(ui: Ui, client: Client) -> None:
    status, _, headers = client.send("GET", f"/assets?token={ui.token}", Accept="text/html", Sec_Fetch_Site="none")
    assert (status, headers["location"]) == (303, "/assets")
    cookie = headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    status, body, headers = client.send("GET", "/assets", Accept="text/html", Cookie=cookie.partition(";")[0])
    assert status == 200
    assert "<html" in body
    assert headers["x-frame-options"] == "DENY"


def test_the_token_is_where_only_its_user_reads_it(ui: Ui, client: Client) -> None:
    token, home = ui.token, ui.home
    client.send("GET", f"/?token={token}")
    client.send("GET", "/?token=wrong")
    assert stat.S_IMODE((home.state / "ui.token").stat().st_mode) == 0o600
    for process in psutil.process_iter(["cmdline"]):
        assert token not in " ".join(process.info["cmdline"] or ()), process
    mine = [psutil.Process(ui.process.pid), *psutil.Process(ui.process.pid).children(recursive=True)]
    assert len(mine) >= 4
    for process in mine:
        with suppress(psutil.NoSuchProcess):
            assert token not in str(process.environ()), process
    for file, data in contents(home.path):
        assert file.name == "ui.token" or token.encode() not in data, file


def test_dagsters_processes_listen_on_the_web_port_and_on_sockets_of_one_private_folder(ui: Ui) -> None:
    port = int(ui.address.rpartition(":")[2])
    children = psutil.Process(ui.process.pid).children(recursive=True)
    listening, sockets = set(), set()
    for process in children:
        connections = []
        with suppress(psutil.NoSuchProcess):
            if process.name() != "java":  # Spark of the process that waits for a run, which may have started by now
                connections = process.net_connections("all")
        for one in connections:
            if one.family == socket.AF_UNIX and str(one.laddr).startswith("/"):
                sockets.add(Path(str(one.laddr)))
            elif one.status == psutil.CONN_LISTEN:
                listening.add((one.laddr.ip, one.laddr.port))
    assert listening == {("127.0.0.1", port)}
    assert len(sockets) == 2, "the code server and its proxy"
    for path in sockets:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700, path


def test_processes_that_never_load_kpipe_get_no_credentials(ui: Ui, client: Client) -> None:
    """They stay readable: `tail` and its watcher, which copy a step's output, and multiprocessing's resource tracker."""
    ui.until(lambda: "orders" in str(ui.ask("Tables")))
    variables = json.dumps(
        {"query": LAUNCH, "variables": {"config": {}, "selector": SELECTOR}},
    )
    helpers = ("tail", "watch_orphans.py", "resource_tracker")
    seen: dict[str, bool] = {}
    again = 0.0

    def all_seen() -> bool:
        nonlocal again
        if time.monotonic() > again:  # a run that fails at once may have ended between two looks
            _, text, _ = client.send("POST", "/graphql", variables, Content_Type="application/json", **client.bearer)
            assert json.loads(text)["data"]["launchPipelineExecution"]["__typename"] == "LaunchRunSuccess", text
            again = time.monotonic() + 30
        for process in psutil.Process(ui.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                words = " ".join(process.cmdline())
                for helper in helpers:
                    if helper in words:
                        seen[helper] = seen.get(helper, False) or CANARY in str(process.environ())
        return len(seen) == len(helpers)

    ui.until(all_seen)
    assert seen == dict.fromkeys(helpers, False)


def test_run_config_reaches_no_setting(ui: Ui, client: Client) -> None:
    ui.until(lambda: "orders" in str(ui.ask("Tables")))
    hostile = {
        "spark": {"home": "/elsewhere", "spark_config": {"spark.pyspark.python": "/bin/false"}},
        "kafka": {"operation_timeout_s": 1},
        "destinations": {"home": "/elsewhere"},
        "io_manager": {"base_dir": "/elsewhere"},
    }
    for name, config in hostile.items():
        variables = {"config": {"resources": {name: {"config": config}}}, "selector": SELECTOR}
        body = json.dumps({"query": LAUNCH, "variables": variables})
        _, text, _ = client.send("POST", "/graphql", body, Content_Type="application/json", **client.bearer)
        found = json.loads(text)["data"]["launchPipelineExecution"]
        assert found["__typename"] == "RunConfigValidationInvalid", (name, text)
        assert f"root:resources:{name}:config" in found["errors"][0]["message"]


def test_run_config_of_the_command_line_reaches_no_setting(tmp_path: Path) -> None:
    home = home_with_a_pipeline(tmp_path / "home")
    environ = prepare(home)
    make_storage(environ)
    config = tmp_path / "run.yaml"
    config.write_text("resources: {spark: {config: {home: /elsewhere, spark_config: {spark.pyspark.python: /bin/false}}}}\n")
    command = ["-m", "dagster", "job", "execute", "-m", "kpipe_assets.definitions", "-j", "__ASSET_JOB", "-c", str(config)]
    done = subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode != 0
    assert "root:resources:spark:config" in done.stderr + done.stdout
