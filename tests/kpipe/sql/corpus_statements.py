"""Statements of pipelines as the pages of SingleStore's "Pipelines Commands" have them, and their values."""

from __future__ import annotations

from kpipe.offsets import Range
from kpipe.sql import statements as s

__all__ = ["ALTERED", "MEANT"]

_NAMES = ("source", "config", "client.id")
#: ALTER PIPELINE p, and the changes.
ALTERED: tuple[tuple[str, tuple[s.Change, ...]], ...] = (
    ("SET OFFSETS EARLIEST", (s.SetOffsets("earliest"),)),
    ("SET OFFSETS LATEST", (s.SetOffsets("latest"),)),
    ("SET OFFSETS '{\"0\": 100, \"1\": 200}'", (s.SetOffsets({0: 100, 1: 200}),)),
    ("SET BATCH_INTERVAL 0", (s.SetField(("batch", "interval_ms"), 0),)),
    ("SET MAX_PARTITIONS_PER_BATCH 2", (s.SetField(("batch", "max_partitions"), 2),)),
    ("SET MAX_OFFSETS_PER_BATCH_PARTITION 9 BATCH_INTERVAL 5",
     (s.SetField(("batch", "max_offsets_per_partition"), 9), s.SetField(("batch", "interval_ms"), 5))),
    ("SET CONFIG '{\"client.id\": \"x\"}'", (s.SetField(("source", "config"), {"client.id": "x"}),)),
    ("SET CONFIG ::`client.id` = 'x'", (s.SetField(_NAMES, "x"),)),
    ("SET CONFIG ::client.id = 'x'", (s.SetField(_NAMES, "x"),)),
    ("SET CREDENTIALS ::sasl.password = '${env:SECRET}'",
     (s.SetField(("source", "credentials", "sasl.password"), "{{ env('SECRET') }}"),)),
    ("SET RETRY_OPTIONS '{\"max_retries\": 2}'", (s.SetField(("batch", "max_retries"), 2),)),
    ("SET TRANSFORM ('file:///opt/clean.py', '', '')",
     (s.SetField(("transform",), {"program": "/opt/clean.py", "stdin": "lines", "mode": "flatmap"}),)),
    ("RELOAD TRANSFORM", (s.ReloadTransform(),)),
    ("STOP_ON_ERROR OFF", (s.SetField(("errors", "batch"), "skip"),)),
    ("STOP_ON_ERROR NONE", (s.SetField(("errors", "batch"), None),)),
    ("DROP PARTITION '2'", (s.DropPartition(2),)),
    ("DROP ORPHAN PARTITIONS", (s.DropOrphans(),)),
    ("ENABLE OUT_OF_ORDER OPTIMIZATION", ()),
    ("DISABLE OFFSETS METADATA GC", ()),
)  # fmt: skip

#: Other statements of pipelines, and what they mean.
MEANT: tuple[tuple[str, s.Statement], ...] = (
    ("START PIPELINE p", s.Start("p")),
    ("START PIPELINE IF NOT RUNNING p", s.Start("p", if_not_running=True)),
    ("START PIPELINE p FOREGROUND", s.Start("p", foreground=True)),
    ("START PIPELINE p FOREGROUND LIMIT 12 BATCHES", s.Start("p", foreground=True, limit=12)),
    ("START ALL PIPELINES", s.StartMany()),
    ("START FAILED PIPELINES", s.StartMany(failed=True)),
    ("STOP PIPELINE p", s.Stop("p")),
    ("STOP PIPELINE IF RUNNING p", s.Stop("p", if_running=True)),
    ("STOP PIPELINE p DETACH", s.Detach("p")),
    ("STOP ALL PIPELINES", s.StopAll()),
    ("DETACH PIPELINE p", s.Detach("p")),
    ("DETACH PIPELINE IF EXISTS p", s.Detach("p", if_exists=True)),
    ("DROP PIPELINE p", s.Drop("p")),
    ("DROP PIPELINE IF EXISTS p", s.Drop("p", if_exists=True)),
    ("TEST PIPELINE p", s.Test("p")),
    ("TEST PIPELINE p LIMIT 1", s.Test("p", 1)),
    ("SHOW PIPELINES", s.ShowPipelines()),
    ("SHOW CREATE PIPELINE p", s.ShowCreate("p")),
    ("SHOW CREATE PIPELINE p EXTENDED", s.ShowCreate("p", True)),
    ("CLEAR PIPELINE ERRORS", s.ClearErrors()),
    ("CLEAR PIPELINE ERRORS FOR p", s.ClearErrors("p")),
    ("EXTRACT PIPELINE p INTO OUTFILE 'f'", s.Extract("p", "f")),
    ("EXTRACT PIPELINE p FROM '0' INTO OUTFILE 'f'", s.Extract("p", "f", 0)),
    ("EXTRACT PIPELINE p FROM '0' OFFSETS 1 TO 10 INTO OUTFILE 'f'", s.Extract("p", "f", 0, Range(1, 10))),
)
