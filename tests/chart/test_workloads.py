"""What every pod of the chart keeps to: resources, security, probes, secrets, images, names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.chart.quantities import quantity
from tests.chart.rendering import (
    Document,
    case,
    containers,
    env,
    of_kind,
    pod_templates,
    rendered,
    workers,
)
from worker.keeper import RENEWALS_PER_LEASE, SWEEP_EVERY_S
from worker.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

HAND_BACK_S = 30  # what a worker may need beyond its drain: see README.md
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
SECRET_NAMES = re.compile(r"PASSW|SECRET|TOKEN(?!S)|CREDENTIAL|ACCESS_KEY", re.IGNORECASE)
LONGEST_RELEASE = "release-of-the-department-for-the-labelling-of-letters"[:53]


def matches(selector: Document, labels: Document) -> bool:
    """Whether a selector of match labels and `In` expressions chooses what has these labels."""
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        labels.get(expression["key"]) in expression["values"] for expression in selector.get("matchExpressions", ())
    )


def selectors(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """Yield every selector of pods of this release."""
    for document in documents:
        where, spec = f"{document['kind']} {document['metadata']['name']}", document.get("spec", {})
        match document["kind"]:
            case "Service":
                yield where, {"matchLabels": spec["selector"]}
            case "Deployment":
                yield where, spec["selector"]
                for spread in spec["template"]["spec"].get("topologySpreadConstraints", ()):
                    yield where, spread["labelSelector"]
            case "PodDisruptionBudget" | "PodMonitor":
                yield where, spec["selector"]
            case "NetworkPolicy":
                yield where, spec["podSelector"]


def test_every_selector_finds_pods_of_this_release(documents: list[Document]) -> None:
    pods = [template["metadata"]["labels"] for _, template in pod_templates(documents)]
    lost = [where for where, selector in selectors(documents) if not any(matches(selector, pod) for pod in pods)]

    assert lost == []


def test_a_deployment_selects_its_own_pods_only(documents: list[Document]) -> None:
    templates = dict(pod_templates(documents))
    for deployment in of_kind(documents, "Deployment"):
        selector = deployment["spec"]["selector"]
        chosen = {owner for owner, pod in templates.items() if matches(selector, pod["metadata"]["labels"])}

        assert chosen == {deployment["metadata"]["name"]}


def test_named_ports_exist(documents: list[Document]) -> None:
    for _, template in pod_templates(documents):
        for container in template["spec"]["containers"]:
            ports = {port["name"] for port in container.get("ports", ())}
            probes = [container[probe] for probe in container if probe.endswith("Probe")]

            assert {probe["httpGet"]["port"] for probe in probes} <= ports


def test_mounts_have_their_volumes(documents: list[Document]) -> None:
    for owner, template in pod_templates(documents):
        spec = template["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            mounts = [mount["name"] for mount in container["volumeMounts"]]

            assert len(mounts) == len(set(mounts)), owner
            assert set(mounts) <= volumes, owner


def test_the_grace_period_outlasts_the_drain(documents: list[Document]) -> None:
    for queue, deployment in workers(documents):
        spec = deployment["spec"]["template"]["spec"]
        drain_s = float(env(spec["containers"][0])["BATCHMILL_DRAIN_TIMEOUT_S"])

        assert spec["terminationGracePeriodSeconds"] >= drain_s + HAND_BACK_S, queue


def test_the_lease_outlasts_three_renewals_and_is_everybody_s(documents: list[Document]) -> None:
    leases = {
        env(container)["BATCHMILL_LEASE_S"] for where, container in containers(documents) if "/model" not in where
    }
    (lease_s,) = map(float, leases)
    renewal_s = lease_s / RENEWALS_PER_LEASE

    assert lease_s >= 3 * renewal_s
    assert renewal_s >= SWEEP_EVERY_S


def test_defaults_are_the_worker_s_own() -> None:
    variables = env(dict(containers(rendered(case("minimal"))))["prod-batchmill-classify/worker"])

    assert float(variables["BATCHMILL_DRAIN_TIMEOUT_S"]) == Settings().drain_timeout_s
    assert float(variables["BATCHMILL_LEASE_S"]) == Settings().lease_s
    assert float(variables["BATCHMILL_BATCH_TIMEOUT_S"]) == Settings().batch_timeout_s


def test_threads_have_their_cpus(documents: list[Document]) -> None:
    for queue, deployment in workers(documents):
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        resources = container["resources"]
        cpus = quantity(resources["limits"].get("cpu", resources["requests"]["cpu"]))

        assert 1 <= int(env(container)["BATCHMILL_RUNNERS"]) <= cpus, queue


def test_memory_is_requested_as_it_is_limited(documents: list[Document]) -> None:
    for where, container in containers(documents):
        resources = container["resources"]

        assert resources["requests"]["memory"] == resources["limits"]["memory"], where
        assert quantity(resources["limits"].get("cpu", resources["requests"]["cpu"])) >= quantity(
            resources["requests"]["cpu"]
        ), where


def test_a_rolling_update_takes_no_worker_before_its_successor_is_ready(documents: list[Document]) -> None:
    for deployment in of_kind(documents, "Deployment"):
        strategy = deployment["spec"]["strategy"]

        assert strategy["type"] == "RollingUpdate"
        assert strategy["rollingUpdate"]["maxUnavailable"] == 0
        assert "readinessProbe" in deployment["spec"]["template"]["spec"]["containers"][0]
