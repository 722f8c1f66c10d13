"""Lookups: reference tables read on the driver, sent once to every process that works, and joined to records by their key."""
