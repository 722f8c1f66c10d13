"""PostgreSQL destination: tables, dead letters and ledger in one schema of one database."""

from resources.destinations.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
