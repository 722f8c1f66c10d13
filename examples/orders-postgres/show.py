"""Print the orders."""

import os

import psycopg

with psycopg.connect(os.environ["DATABASE"]) as connection:
    for row in connection.execute("SELECT id, status, total FROM orders ORDER BY id"):
        print(row)  # noqa: T201
