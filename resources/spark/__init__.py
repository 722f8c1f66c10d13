"""The stager on Spark. What tasks import (`worker` and below) imports neither pyspark at its top nor Dagster."""
