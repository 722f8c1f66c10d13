"""The stager on Spark. What tasks import (task/range_task.py and below) imports neither pyspark at its top nor Dagster."""
