"""kpipe's own Dagster instance: web server, daemon, code server, and their supervisor."""
