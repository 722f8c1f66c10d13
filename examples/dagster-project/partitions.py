"""Add the topic's partitions to Dagster, as the sensor of the pipeline does when it is on."""

import dagster as dg

with dg.DagsterInstance.get() as instance:
    instance.add_dynamic_partitions("kafka/shop.sales", ["0"])
