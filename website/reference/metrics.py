"""Generate the page of the metrics from kpipe_assets/metrics/families.py."""

from __future__ import annotations

from kpipe_assets.metrics.exposition import Settings
from kpipe_assets.metrics.families import FAMILIES
from website.reference.markdown import table

__all__ = ["metrics"]

_SOURCES = {
    "ledger": (
        "From the ledger",
        "Exact. Counters survive restarts of every process, `STOP`, `DROP PIPELINE` with a new `CREATE`, and the clearing of\n"
        "a table. They begin again at 0 only with another ledger: in another destination, or after its deletion.\n"
        "A restored backup sets them back.",
    ),
    "brokers": ("From the brokers", "Missing while the brokers do not answer."),
    "home": ("From the home", "Of the machine that answers the scrape. `kpipe_retries_total` begins again with a new home."),
}


def metrics() -> str:
    """Return the page."""
    default = Settings()
    parts = [
        "# Metrics\n",
        "Look up a metric of `/metrics`: its labels, its meaning, and what resets it.\n",
        "[Watch pipelines with Prometheus](../how-to/operate/metrics.md) sets it up. End offsets are exclusive.\n",
    ]
    for source, (title, text) in _SOURCES.items():
        rows = [
            (f"`{item.name}`", item.type, ", ".join(f"`{label}`" for label in item.labels), item.help)
            for item in FAMILIES
            if item.source == source
        ]
        parts += [f"## {title}\n", f"{text}\n", table(("metric", "type", "labels", "meaning"), rows)]
    parts += [
        "## Settings\n",
        "Environment variables of the process that answers, such as `kpipe ui`.\n",
        table(
            ("variable", "default", "bounds"),
            [
                (
                    "`KPIPE_METRICS_MAX_PARTITIONS`",
                    str(default.max_partitions),
                    "partitions of a pipeline with series of their own, and partitions whose record times are looked up",
                ),
                ("`KPIPE_METRICS_TIMEOUT_S`", f"{default.timeout_s:g}", "seconds that a scrape waits for ledgers and brokers"),
            ],
        ),
    ]
    return "\n".join(parts)
