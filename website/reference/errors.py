"""Generate the page of errors, from their classes and from the fix of each."""

from __future__ import annotations

from kpipe import errors as module
from kpipe.errors import KpipeError
from website.reference.markdown import sentence, summary, table

__all__ = ["FIXES", "errors"]

#: What an operator does about each error, by its class.
FIXES = {
    "OffsetsLost": "[Accept the data loss](../how-to/operate/recover.md#data-loss)",
    "SourceIdentityChanged": "[Choose which topic to read](../how-to/operate/recover.md#another-topic)",
    "TopicGone": "[Recreate the topic, or drop its partitions](../how-to/topics.md#a-missing-topic)",
    "OffsetsBeyondEnd": "[Check the log](../how-to/operate/recover.md#a-log-that-is-too-short)",
    "LogTruncated": "[Decide where to continue](../how-to/operate/recover.md#a-log-that-was-cut-and-has-grown-again)",
    "LedgerMismatch": "[Restore the destination, or accept it](../how-to/operate/restore.md)",
    "InvalidPipeline": "Fix the named field",
    "InvalidStatement": "Fix the statement at the caret",
    "DefinitionChanged": "Read the definition again, and repeat the change",
    "NotAvailable": "Follow the hint; see the [changelog](../../CHANGELOG.md)",
    "SourceError": "Read the message; run again",
    "BrokerUnreachable": "Check `source.brokers`, `security.protocol`, and that Kafka runs. A run is not retried before a"
    " broker has answered it; `operation.timeout.ms` in `source.config` is how long it waits",
    "TopicUnknown": "Check the name; kpipe never creates a source topic",
    "CredentialsRefused": "Check `source.credentials`, `sasl.mechanism` and `ssl.ca.location`. kpipe needs Describe and Read on"
    " the topic, and Describe on the group `kpipe-stores-nothing`",
    "ReadStalled": "Check the brokers",
    "LookupFailed": "Check the server of the lookup, or raise `lookups.NAME.timeout_s`",
    "RegistryFailed": "Check that the registry runs, and `format.registry`",
    "ReadFailed": "Run again: the next plan reports what is missing",
    "RecordsUnreadable": "Change the setting that the hint names, or"
    " [skip the batch](../how-to/operate/retry.md#skip-what-always-fails)",
    "RecordRejected": "Fix the producer, or set [`errors`](fields.md#errors) of that stage to `dead_letter`",
    "TransformFailed": "[Fix the program](../how-to/transforms.md#what-each-failure-looks-like)",
    "DeadLettersExceeded": "Fix the cause, or raise `errors.max_dead_letters`",
    "FormatTooNew": "Upgrade kpipe on this machine ([upgrade](../how-to/operate/upgrade.md))",
    "DestinationError": "Read the message; run again. Nothing was written",
    "AuditFailed": "Query the branch that the message names"
    " ([checks](../how-to/destinations/lakes.md#checks-before-rows-are-seen)), then change the definition or the producer",
    "MaintenanceFailed": "Run `kpipe verify`, and report it: the table is unchanged"
    " ([maintenance](../how-to/operate/maintain.md#proof))",
    "SchemaConflict": "Declare the type under `columns`, change the table, or set `schema: ignore`",
    "StagingFailed": "Free disk space, or set `KPIPE_HOME` to a larger disk; run again",
    "StoreUnreachable": "Check the endpoint of the store, and that it runs",
    "CredentialUnavailable": "Run the command as the message says; [what a command gets](../how-to/credentials.md#commands)",
    "WorkerLost": "Read `.kpipe/logs/spark.log` and `dmesg`; if memory was short, lower `batch.max_offsets_per_partition`",
    "DestinationBusy": "Close the client that the message names, or start the server",
    "Fenced": "Run again",
    "OutcomeUnknown": "Run again once the destination answers: the ledger has the outcome",
}


def errors() -> str:
    """Return the page.

    Raises:
        LookupError: an error has no fix, or a fix has no error.
    """
    classes: dict[str, type[KpipeError]] = {name: getattr(module, name) for name in module.__all__ if name != "by_name"}
    bases = {"KpipeError", "NeedsOperator"}
    if wrong := (classes.keys() - bases) ^ FIXES.keys():
        raise LookupError(f"website/reference/errors.py and kpipe/errors.py differ: {', '.join(sorted(wrong))}")
    ordered = sorted(FIXES, key=lambda name: (-classes[name].exit_status, list(FIXES).index(name)))
    return "\n".join(
        [
            "# Errors\n",
            "Look up an error that kpipe prints: what it means, and what to do.\n",
            "An error is one line on stderr: `subject: problem -> hint`. `kpipe --debug` adds the traceback. Retries:"
            "\n`batch.max_retries`.\n",
            table(("error", "exit", "retried", "meaning", "fix"), [row(name, classes[name]) for name in ordered]),
            "Exit status 3 stays until an operator decides: a service manager must not restart the run.\n`kpipe_commits.note`"
            " records each decision.\n",
        ]
    )


def row(name: str, kind: type[KpipeError]) -> tuple[str, str, str, str, str]:
    """Return the row of an error."""
    return f"`{name}`", str(kind.exit_status), "yes" if kind.retriable else "no", sentence(summary(kind)), sentence(FIXES[name])
