"""The manifests of `examples/deploy`: a server starts with what they say, and answers their probes."""

from __future__ import annotations

import math
import re
import signal
import time
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]
from sensorium.kernels import native
from support.command_line import serving

DEPLOY = Path(__file__).parents[3] / "examples" / "deploy"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def objects() -> dict[str, Object]:
    """By kind."""
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert all({"apiVersion", "kind", "metadata"} <= set(each) for each in found)
    return {each["kind"]: each for each in found}


@pytest.fixture
def pod(objects: dict[str, Object]) -> Object:
    template: Object = objects["Deployment"]["spec"]["template"]
    return template


def container(pod: Object) -> Object:
    (found,) = pod["spec"]["containers"]
    return dict(found)


def test_objects_name_each_other(objects: dict[str, Object], pod: Object) -> None:
    labels, server = pod["metadata"]["labels"], container(pod)
    for selector in (
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["Service"]["spec"]["selector"],
        objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in server["volumeMounts"]} == set(volumes)
    assert volumes["config"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert volumes["keys"]["secret"]["secretName"] == objects["Secret"]["metadata"]["name"]
    ports = {port["name"] for port in server["ports"]}
    (service_port,) = objects["Service"]["spec"]["ports"]
    assert service_port["targetPort"] in ports
    assert all(
        server[f"{name}Probe"]["httpGet"]["port"] in ports for name in ("startup", "liveness", "readiness")
    )
    backend = objects["Ingress"]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": objects["Service"]["metadata"]["name"], "port": {"name": service_port["name"]}}


def test_the_grace_period_holds_the_pause_and_the_drain(objects: dict[str, Object], pod: Object) -> None:
    options = tomllib.loads(objects["ConfigMap"]["data"]["sensorium.toml"])["serve"]
    pause_s = int(container(pod)["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["spec"]["terminationGracePeriodSeconds"] > pause_s + options["drain-s"] + 2


def test_the_image_runs_the_command() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    project = tomllib.loads((DEPLOY.parents[1] / "pyproject.toml").read_text())["project"]
    (entrance,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', text, re.MULTILINE)
    assert entrance in project["scripts"]
    assert re.search(r'/src/engine/checkpoints "/src\[\$EXTRAS\]"', text)
    (extra,) = re.findall(r"^ARG EXTRAS=(\w+)$", text, re.MULTILINE)
    assert extra == "serve"
    assert {extra, "cluster"} <= project["optional-dependencies"].keys()


@pytest.mark.slow
def test_a_server_starts_with_what_the_manifest_says(
    objects: dict[str, Object], pod: Object, tmp_path: Path
) -> None:
    """Its arguments, environment and files; files lie below another folder, and it listens only here."""
    server = container(pod)
    mounts = sorted((mount["mountPath"] for mount in server["volumeMounts"]), key=len, reverse=True)
    mounted = re.compile(rf"(?<![\w/])(?:{'|'.join(map(re.escape, mounts))})\b")

    def moved(text: str) -> str:
        return mounted.sub(lambda found: f"{tmp_path}/.{found[0]}", text)

    keys = objects["Secret"]["stringData"]["keys"]
    config = moved(objects["ConfigMap"]["data"]["sensorium.toml"])
    for path, text in (("/etc/sensorium/sensorium.toml", config), ("/etc/sensorium/keys/keys", keys)):
        file = Path(f"{tmp_path}/.{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    environment = {each["name"]: moved(each["value"]) for each in server["env"]}
    assert environment["SENSORIUM_HOST"] == "0.0.0.0"
    assert environment["SENSORIUM_PORT"] == str(server["ports"][0]["containerPort"])
    environment |= {"SENSORIUM_HOST": "127.0.0.1", "SENSORIUM_PORT": "0"}
    assert server["args"][0] == "serve"
    host = objects["Ingress"]["spec"]["rules"][0]["host"]
    key = next(line for line in keys.splitlines() if line and not line.startswith("#"))
    arguments = [moved(argument) for argument in server["args"][1:]]
    # The kernels were compiled before, and are found again where that server looks for them.
    cache, home = native.user_cache(), Path(environment["HOME"])
    if cache is not None and native.library() is not None:
        (home / ".cache").mkdir(parents=True)
        (home / ".cache" / "sensorium").symlink_to(cache)
    with serving(*arguments, **environment) as (process, url):
        for probe in ("startup", "liveness", "readiness"):
            assert httpx.get(url + server[f"{probe}Probe"]["httpGet"]["path"]).status_code == 200
        for name in (host, "speech", "speech.default.svc.cluster.local"):
            assert httpx.get(f"{url}/v1/models", headers={"Host": name}).status_code == 401
            headers = {"Host": name, "Authorization": f"Bearer {key}"}
            assert httpx.get(f"{url}/v1/models", headers=headers).status_code == 200
        assert httpx.get(f"{url}/v1/models", headers={"Host": "evil.example"}).status_code == 403
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert math.floor(time.monotonic() - began) <= pod["spec"]["terminationGracePeriodSeconds"]
