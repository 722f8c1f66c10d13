"""kpipe's own Dagster instance: web server, daemon, code server, and their supervisor."""

#: Name of the code location, as in workspace.yaml.
LOCATION = "kpipe"
