"""A real REST catalogue for tests: the reference server of Iceberg's own project, from its jars (`make lakes`).

Its own main listens on all of the machine's addresses, so the same parts are put together here, on the loopback one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from resources.java import find_java
from tests.faults.proxy import Proxy


def jars() -> list[str] | None:
    """The server's jars, and two of Spark's: Hadoop, with which it writes files, and Py4J, through which it is started."""
    folder = Path(sys.prefix) / "share" / "iceberg-rest"
    spark = Path(pyspark.__file__).parent / "jars"
    besides = [path for name in ("hadoop-client-*.jar", "py4j-*.jar") for path in map(str, spark.glob(name))]
    return [f"{folder}/*", *besides] if folder.is_dir() else None


def served(gateway: JavaGateway, folder: Path) -> int:
    """Start the server in that JVM, with a catalogue in that folder, as RESTCatalogServer does but for the address; its port."""
    java = gateway.jvm
    iceberg, jetty = java.org.apache.iceberg, java.org.eclipse.jetty
    settings = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:file:{folder}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"file://{folder}/warehouse",
    }
    catalog = iceberg.CatalogUtil.buildIcebergCatalog("rest_backend", settings, java.org.apache.hadoop.conf.Configuration())
    servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
    context = jetty.ee10.servlet.ServletContextHandler(jetty.ee10.servlet.ServletContextHandler.NO_SESSIONS)
    context.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
    compression = jetty.compression.server.CompressionHandler()
    compression.putCompression(jetty.compression.gzip.GzipCompression())
    context.insertHandler(compression)
    server = jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
    server.setHandler(context)
    server.start()
    return int(server.getURI().getPort())


class RestServer:
    """One server, and a proxy before it. A context manager; it ends with this process."""

    def __init__(self) -> None:
        found = jars()
        if found is None:
            pytest.skip("no REST catalogue -> make lakes")
        self.jars, self.folder = found, Path(tempfile.mkdtemp(prefix="kpipe-rest-"))

    def __getstate__(self) -> dict[str, Any]:
        """Where it is: what another process needs."""
        return {"port": self.port, "uri_": self.uri}

    @property
    def uri(self) -> str:
        """Through the proxy."""
        return str(self.__dict__.get("uri_") or f"http://{self.proxy.address}")

    @property
    def direct(self) -> str:
        """Around it."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> RestServer:
        java = ["setpriv", "--pdeathsig", "KILL", str(find_java().executable), "-Xmx256m", "-cp", ":".join(self.jars)]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*java, "py4j.GatewayServer", "--enable-auth", "0"],
                env={"PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            assert self.process.stdout is not None
            port, token = self.process.stdout.readline().strip(), self.process.stdout.readline().strip()
            assert port and token, "the JVM ended"
            gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auth_token=token, auto_convert=True))
            try:
                self.port = served(gateway, self.folder)
            finally:
                gateway.shutdown()  # the way in; the server stays
            self.proxy = Proxy(self.port)
        except BaseException as error:
            said = (self.folder / "log").read_text()
            self._end()
            raise AssertionError(said) from error
        self.proxy.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.proxy.__exit__(kind, error, trace)
        self._end()

    def _end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)
