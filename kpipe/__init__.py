"""The core of kpipe: offsets, ledger, plan, batch, schema, pipeline model, loop. Imports no engine."""

__version__ = "0.1.0"
