"""Spark on other machines: master, YARN, Kubernetes, executors, Python environment."""
