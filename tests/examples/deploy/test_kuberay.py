"""The manifests for KubeRay: their commands are ours, and what one refers to is in another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from sensorium.actors.commands import app

MANIFESTS = Path(__file__).parents[3] / "examples" / "deploy" / "kuberay.yaml"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    found = list(yaml.safe_load_all(MANIFESTS.read_text()))
    assert all({"apiVersion", "kind", "metadata"} <= set(each) for each in found)
    return found


def of(objects: list[Object], kind: str) -> Object:
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def container(template: Object, name: str) -> Object:
    (found,) = (each for each in template["spec"]["containers"] if each["name"] == name)
    return dict(found)


def bound(args: list[str]) -> dict[str, Any]:
    """What our command line makes of arguments; exits where it does not take them."""
    _, arguments, _ = app.parse_args(args, exit_on_error=False, print_error=False)
    return dict(arguments.arguments)


def test_the_commands_are_ours_and_agree(objects: list[Object]) -> None:
    ray = of(objects, "RayCluster")["spec"]
    cluster = container(ray["headGroupSpec"]["template"], "cluster")
    server = container(of(objects, "Deployment")["spec"]["template"], "server")
    asked, served = bound(cluster["args"]), bound(server["args"])
    assert cluster["command"] == ["sensorium"]
    assert asked["models"] == served["models"]
    assert asked["secret_file"] == served["process"].engine_secret_file
    assert asked["scale"].max_replicas == ray["workerGroupSpecs"][0]["maxReplicas"]
    worker = container(ray["workerGroupSpecs"][0]["template"], "ray")
    assert asked["scale"].num_cpus <= float(worker["resources"]["limits"]["cpu"])
    host, _, port = served["process"].cluster.partition(":")
    services = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Service"}
    assert services[host]["ports"][0]["port"] == int(port)
    assert asked["listen"].endswith(f":{cluster['ports'][0]['containerPort']}")
    grace_s = of(objects, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s >= served["listen"].drain_s + 10


def test_every_container_of_ray_asks_for_the_token(objects: list[Object]) -> None:
    ray = of(objects, "RayCluster")["spec"]
    head, worker = ray["headGroupSpec"]["template"], ray["workerGroupSpecs"][0]["template"]
    keys = of(objects, "Secret")["stringData"].keys()
    for each in (*head["spec"]["containers"], *worker["spec"]["containers"]):
        environment = {variable["name"]: variable for variable in each["env"]}
        assert environment["RAY_AUTH_MODE"]["value"] == "token"
        assert environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["key"] in keys


def test_services_select_pods_that_are_there(objects: list[Object]) -> None:
    labels = [
        of(objects, "RayCluster")["spec"]["headGroupSpec"]["template"]["metadata"]["labels"],
        of(objects, "Deployment")["spec"]["template"]["metadata"]["labels"],
    ]
    for each in objects:
        if each["kind"] == "Service":
            assert any(each["spec"]["selector"].items() <= found.items() for found in labels)
