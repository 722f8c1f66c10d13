"""The pure core of kpipe: offsets, ledger, plan, batch, schema, pipeline model, the loop. Imports no engine."""

__version__ = "0.1.0"
