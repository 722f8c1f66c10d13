"""The files of deploy/ fit together, and the project: what can be told without a cluster."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.built import ROOT

FOLDER = ROOT / "deploy"
MANIFEST = (FOLDER / "kubernetes" / "kpipe.yaml").read_text()
THINGS: dict[str, Any] = {thing["kind"]: thing for thing in yaml.safe_load_all(MANIFEST)}


def defaults() -> dict[str, str]:
    lines = THINGS["ConfigMap"]["data"]["spark-defaults.conf"].splitlines()
    return dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))


def test_the_image_takes_what_the_project_has() -> None:
    text = (FOLDER / "Containerfile").read_text().replace("\\\n", " ")
    words = [line.split()[1:] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line]
    named = [name for *names, _ in words for name in names]
    assert {"kpipe", "transforms", "resources", "kpipe_assets", "requirements.lock"} <= {*named}
    assert [name for name in named if not (ROOT / name).exists()] == []
    lock = (ROOT / "requirements.lock").read_text() + (ROOT / "requirements-build.lock").read_text()
    (left,) = re.findall(r"pip uninstall --yes\s+(.+)", text)
    assert [name for name in left.split() if f"\n{name}==" not in f"\n{lock}"] == []
    assert "--require-hashes" in text and re.search(r"^USER [1-9]", text, re.MULTILINE)


def test_the_manifest_names_itself() -> None:
    settings, pod = defaults(), THINGS["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert len(THINGS) == 7
    assert settings["spark.kubernetes.container.image"] == container["image"]
    name, namespace = THINGS["StatefulSet"]["metadata"]["name"], THINGS["Namespace"]["metadata"]["name"]
    assert settings["spark.kubernetes.driver.pod.name"] == f"{name}-0"
    assert THINGS["StatefulSet"]["spec"]["serviceName"] == THINGS["Service"]["metadata"]["name"]
    assert {thing["metadata"].get("namespace", namespace) for thing in THINGS.values()} == {
        settings["spark.kubernetes.namespace"]
    }
    assert pod["serviceAccountName"] == THINGS["ServiceAccount"]["metadata"]["name"]
    assert THINGS["RoleBinding"]["roleRef"]["name"] == THINGS["Role"]["metadata"]["name"]
    assert THINGS["Service"]["spec"]["selector"] == THINGS["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    template = Path(settings["spark.kubernetes.executor.podTemplateFile"])
    assert template.name in THINGS["ConfigMap"]["data"]
    assert str(template.parent) in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert yaml.safe_load(THINGS["ConfigMap"]["data"][template.name])["kind"] == "Pod"
    user = pod["securityContext"]["fsGroup"]
    assert f"USER {user}:{user}" in (FOLDER / "Containerfile").read_text()


def test_the_account_may_nothing_by_a_star() -> None:
    rules = THINGS["Role"]["rules"]
    assert "*" not in [word for rule in rules for words in rule.values() for word in words]
    assert "secrets" not in [name for rule in rules for name in rule["resources"]]


def test_the_first_process_of_an_executor(tmp_path: Path) -> None:
    """Spark's variables become arguments, with what is in them; a command is run as it is."""
    (tmp_path / "tini").write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\n')
    (tmp_path / "tini").chmod(0o755)
    names = (
        "DRIVER_URL",
        "EXECUTOR_ID",
        "EXECUTOR_CORES",
        "APPLICATION_ID",
        "EXECUTOR_POD_IP",
        "RESOURCE_PROFILE_ID",
        "EXECUTOR_POD_NAME",
    )
    given = {f"SPARK_{name}": name.lower() for name in (*names, "EXECUTOR_MEMORY", "CONF_DIR")}
    options = {f"SPARK_JAVA_OPT_{at}": f"-Dn={at} of many" for at in range(12)}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **given, **options}

    def run(*words: str) -> list[str]:
        command = [str(FOLDER / "entrypoint.sh"), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()

    said = run("executor")
    assert said[:4] == ["<-g>", "<-->", "<java>", "<-Dn=0 of many>"] and "<-Dn=11 of many>" in said
    assert {f"<{name.lower()}>" for name in names} <= {*said}
    assert "<-Xmxexecutor_memory>" in said and "<conf_dir:" in "".join(said)
    assert run("kpipe", "run", "a b") == ["<-->", "<kpipe>", "<run>", "<a b>"]
