"""MariaDB and MySQL as a destination: the table, its dead letters and its ledger in one database."""

from resources.destinations.mysql.destination import MySQLDestination

__all__ = ["MySQLDestination"]
