"""MariaDB and MySQL destination: tables, dead letters and ledger in one database."""

from resources.destinations.mysql.engine import MySQLEngine

__all__ = ["MySQLEngine"]
