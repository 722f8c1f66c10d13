"""MariaDB and MySQL as a destination: the table, its dead letters and its ledger in one database."""

from resources.destinations.mysql.engine import MySQLEngine

__all__ = ["MySQLEngine"]
