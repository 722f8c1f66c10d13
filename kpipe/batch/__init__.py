"""A batch of offset ranges: the plan, the reports of the tasks, and the commit. Immutable values."""
