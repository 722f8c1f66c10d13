"""Decode change events of Debezium to rows and deletes."""
