"""Lookups: reference tables read on the driver, sent once to every worker process, and joined to records by their key."""
