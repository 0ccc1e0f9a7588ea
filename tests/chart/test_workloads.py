"""What every pod of the chart keeps to: resources, security, probes, secrets, images, names."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.chart.quantities import quantity
from tests.chart.rendering import (
    CASES,
    CHART,
    Document,
    case,
    containers,
    env,
    named,
    of_kind,
    pod_templates,
    rendered,
    workers,
)
from worker.keeper import RENEWALS_PER_LEASE, SWEEP_EVERY_S
from worker.settings import ENV_PREFIX, Settings, env_name, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


def test_pods_keep_to_the_restricted_standard(documents: list[Document]) -> None:
    for owner, template in pod_templates(documents):
        spec = template["spec"]
        context = spec["securityContext"]

        assert context["runAsNonRoot"] is True, owner
        assert context["runAsUser"] == context["runAsGroup"] == 10001, owner
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, owner
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), owner
        assert not any("hostPath" in volume for volume in spec["volumes"]), owner
        assert spec["automountServiceAccountToken"] is False, owner
        assert spec["enableServiceLinks"] is False, owner


def test_containers_keep_to_the_restricted_standard(documents: list[Document]) -> None:
    for where, container in containers(documents):
        context = container["securityContext"]

        assert context["allowPrivilegeEscalation"] is False, where
        assert context["readOnlyRootFilesystem"] is True, where
        assert context["capabilities"] == {"drop": ["ALL"]}, where
        assert not any("hostPort" in port for port in container.get("ports", ())), where
        assert any(mount["mountPath"] == "/tmp" for mount in container["volumeMounts"]), where  # noqa: S108 - the pod's


def test_no_secret_is_written_out(documents: list[Document]) -> None:
    assert not of_kind(documents, "Secret")
    for where, container in containers(documents):
        for name, value in env(container).items():
            assert not SECRET_NAMES.search(name), f"{where} {name}"
            assert not re.search(r"://[^/@]*:(?!\$\()[^/@]+@", value), f"{where} {name}"


def test_the_database_s_address_comes_from_the_secret(documents: list[Document]) -> None:
    for where, container in containers(documents):
        variables = {variable["name"]: variable for variable in container["env"]}
        if container["name"] == "model":
            assert "BATCHMILL_BROKER_URL" not in variables
            continue
        address = variables["BATCHMILL_BROKER_URL"]
        source = variables["BROKER_PASSWORD"] if "value" in address else address

        assert source["valueFrom"]["secretKeyRef"]["name"], where
        assert "value" not in address or "$(BROKER_PASSWORD)" in address["value"], where


def test_an_address_is_put_together_as_the_worker_reads_it() -> None:
    address = env(dict(containers(rendered(case("managed-redis"))))["prod-batchmill-classify/worker"])
    settings = Settings(broker_url=address["BATCHMILL_BROKER_URL"].replace("$(BROKER_PASSWORD)", "s3cret"))

    assert settings.address.scheme == "rediss"
    assert settings.address.hosts == (("master.batchmill.abc123.euc1.cache.amazonaws.com", 6380),)
    assert (settings.address.username, settings.address.password) == ("batchmill-worker", "s3cret")
    assert settings.address.database == 2
    assert settings.address.options["ssl_ca_certs"] == "/etc/batchmill/broker/ca.crt"


def test_liveness_asks_the_process_and_starts_none(documents: list[Document]) -> None:
    probed = 0
    for where, container in containers(documents):
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            if name in container:
                path = "/ready" if name == "readinessProbe" else "/live"
                probed += 1

                assert container[name]["httpGet"] == {"path": path, "port": "http"}, where
                assert "exec" not in container[name], where
        assert "celery" not in json.dumps(container.get("command", "")), where
        assert container["name"] not in {"worker", "exporter"} or "livenessProbe" in container, where
    assert probed >= 3


def test_no_container_needs_a_shell(documents: list[Document]) -> None:
    for where, container in containers(documents):
        assert (container.get("command") or ["python"])[0] == "python", where


def test_a_rolling_update_takes_no_worker_before_its_successor_is_ready(documents: list[Document]) -> None:
    for deployment in of_kind(documents, "Deployment"):
        strategy = deployment["spec"]["strategy"]

        assert strategy["type"] == "RollingUpdate"
        assert strategy["rollingUpdate"]["maxUnavailable"] == 0
        assert "readinessProbe" in deployment["spec"]["template"]["spec"]["containers"][0]


def test_with_a_digest_every_container_runs_it() -> None:
    images = {where: container["image"] for where, container in containers(rendered(case("airgapped")))}

    assert {"prod-batchmill-classify/model", "prod-batchmill-nightly/bulk", "prod-batchmill-test/first-ticket"} <= set(
        images
    )
    assert all(DIGEST.search(image) for image in images.values())
    assert all(image.startswith("registry.internal:5000/ml/batchmill@") for image in images.values())


def test_all_containers_run_one_image(documents: list[Document]) -> None:
    assert len({container["image"] for _, container in containers(documents)}) == 1


def test_the_image_is_the_chart_s_version_unless_named() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (_, container), *_ = containers(rendered(case("minimal")))

    assert container["image"] == f"batchmill:{chart['appVersion']}"


def test_a_fetched_model_is_checked_before_the_worker_starts() -> None:
    deployment = named(rendered(case("airgapped")), "Deployment", "prod-batchmill-classify")
    (init,) = deployment["spec"]["template"]["spec"]["initContainers"]
    (worker,) = deployment["spec"]["template"]["spec"]["containers"]

    assert init["args"][:2] == ["model", "fetch"]
    assert re.fullmatch(r"[0-9a-f]{64}", init["args"][init["args"].index("--sha256") + 1])
    assert init["args"][-2:] == ["--to", "/models/tickets-de"]
    assert env(worker)["BATCHMILL_MODEL"] == "tickets-de"
    assert env(worker)["BATCHMILL_MODELS_DIR"] == "/models"
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in worker["volumeMounts"]


def test_a_model_on_a_volume_is_only_read() -> None:
    deployment = named(rendered(case("irsa")), "Deployment", "prod-batchmill-ocr")
    spec = deployment["spec"]["template"]["spec"]
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "models")

    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert env(spec["containers"][0])["BATCHMILL_OCR_MODEL"] == "ocr-accurate-3"


def test_every_option_that_is_set_exists(documents: list[Document]) -> None:
    known = {env_name(field) for field in Settings.model_fields}
    for where, container in containers(documents):
        named_options = {variable["name"] for variable in container["env"] if variable["name"].startswith(ENV_PREFIX)}

        assert named_options <= known, where


def test_the_settings_of_every_container_are_valid(documents: list[Document], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(ENV_PREFIX)]:
        monkeypatch.delenv(name)
    for where, container in containers(documents):
        with monkeypatch.context() as patched:
            for name, value in env(container).items():
                patched.setenv(name, value.replace("$(BROKER_PASSWORD)", "s3cret"))

            assert load().lease_s >= 3, where


@pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)
def test_names_fit_however_long_the_release_s_is(values: Path) -> None:
    documents = rendered(values, release=LONGEST_RELEASE)
    for document in documents:
        name = document["metadata"]["name"]

        assert len(name) <= (52 if document["kind"] == "CronJob" else 63)
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
        assert all(len(value) <= 63 for value in document["metadata"]["labels"].values())
    for _, template in pod_templates(documents):
        assert all(len(value) <= 63 for value in template["metadata"]["labels"].values())


def test_two_long_releases_keep_apart() -> None:
    first = rendered(case("minimal"), release=LONGEST_RELEASE)
    second = rendered(case("minimal"), release=LONGEST_RELEASE[:-1] + "x")

    assert {d["metadata"]["name"] for d in first}.isdisjoint({d["metadata"]["name"] for d in second})


def test_an_account_has_its_role() -> None:
    documents = rendered(case("irsa"))
    (account,) = of_kind(documents, "ServiceAccount")

    assert account["metadata"]["name"] == "batchmill-lake"
    assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].endswith("role/batchmill-lake")
    assert {template["spec"]["serviceAccountName"] for _, template in pod_templates(documents)} == {"batchmill-lake"}
    assert not any(name.startswith("AWS_ACCESS") for _, container in containers(documents) for name in env(container))
