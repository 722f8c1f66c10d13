"""PostgreSQL as a destination: the table, its dead letters and its ledger in one schema of one database."""

from resources.destinations.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
