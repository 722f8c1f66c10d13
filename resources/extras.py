"""Optional dependencies: the extra of `pyproject.toml` that installs each library, and the error for a missing one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from kpipe.errors import NotAvailable

__all__ = ["LIBRARIES", "install_hint", "missing", "require"]

#: The modules that each extra adds. An extra that only combines others (`all`, `demo`) is not listed.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "azure": ("azure.storage.blob",),
    "delta": ("deltalake", "pyroaring"),
    "ducklake": ("duckdb_extension_ducklake", "duckdb_extension_sqlite_scanner", "duckdb_extension_postgres_scanner"),
    "gcs": ("google.cloud.storage",),
    "iceberg": ("pyiceberg",),
    "jsonschema": ("jsonschema_rs",),
    "mysql": ("pymysql",),
    "openlineage": ("openlineage",),
    "otel": ("opentelemetry",),
    "postgres": ("psycopg",),
    "protobuf": ("grpc_tools",),
    "s3": ("boto3",),
    "serve": ("fastapi", "prometheus_client", "starlette", "uvicorn"),
    "spark": ("pyspark", "dagster_pyspark"),
    "ui": ("dagster_webserver", "prometheus_client", "starlette", "uvicorn"),
}


def install_hint(*extras: str) -> str:
    """Return the commands that install extras: pip's, and that of a checkout, which installs all from the locks."""
    return f"pip install 'kpipe[{','.join(extras)}]' (in a checkout: make install)"


def missing(subject: str, library: str, *extras: str, error: Exception | None = None) -> NotAvailable:
    """Build the error for a library that cannot be imported.

    Args:
        subject: what needs the library: a pipeline and its field, or a command.
        library: its name on the package index.
        extras: the extras that install it.
        error: why the import failed; None: the library was not found.
    """
    why = f"cannot be imported: {error}" if error is not None else "is not installed"
    return NotAvailable(f"{subject} needs {library}, which {why}", install_hint(*extras))


def require(extra: str, subject: str) -> None:
    """Check that the modules of an extra are installed, without importing them.

    Raises:
        NotAvailable: a module is missing.
    """
    for module in LIBRARIES[extra]:
        if not _exists(module):
            raise missing(subject, module.replace("_", "-").replace(".", "-"), extra)


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that contains it
        return False
