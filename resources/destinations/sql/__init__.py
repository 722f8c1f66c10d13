"""Load tables of SQL databases: the destination, the engine that a database provides, the commit, retry and clearing."""
