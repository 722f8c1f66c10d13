"""Python workers of Spark: the daemon that forks them, what they import before their first task, when they are replaced."""
