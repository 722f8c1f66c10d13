#!/bin/sh
# First process of a container: a command (`kpipe ui`), or `executor`, with which Spark on Kubernetes starts a pod.
#
# What Spark gives an executor are variables: SPARK_JAVA_OPT_0, _1 ... are options of Java's, SPARK_CONF_DIR a folder that it
# mounts, SPARK_CLASSPATH what `spark.executor.extraClassPath` says; the rest are arguments of its main class.
set -eu

if [ "${1:-}" != executor ]; then
  exec tini -- "$@"
fi

for spark in /opt/kpipe/venv/lib/python3*/site-packages/pyspark; do :; done

set --
at=0
while eval "option=\${SPARK_JAVA_OPT_$at-}"; [ -n "$option" ]; do
  set -- "$@" "$option"
  at=$((at + 1))
done

# -g: Spark's Python workers are told to end, too.
exec tini -g -- java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CONF_DIR:-$spark/conf}:${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$spark/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
