"""Dagster's web server and `/metrics`, behind kpipe's access rules: `python -m kpipe_assets.metrics.webserver ARGUMENT ...`.

The arguments are those of `serve` in kpipe_assets/dagster_server/webserver.py.
"""

from __future__ import annotations

from kpipe_assets.dagster_server.webserver import serve
from kpipe_assets.metrics.endpoint import with_metrics
from resources.home import Home

__all__: list[str] = []

if __name__ == "__main__":
    home = Home.from_env()
    serve(lambda app: with_metrics(app, home))
