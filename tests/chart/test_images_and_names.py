"""Which image and which model run, and that every name fits."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.chart.rendering import CHART, Document, case, containers, env, named, pod_templates, rendered, workers

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
LONGEST_RELEASE = "release-of-the-department-for-the-labelling-of-letters"[:53]
# The controller appends 11 characters to a CronJob's name; KEDA puts keda-hpa- before a ScaledObject's, as a label.
LONGEST = {"CronJob": 52, "ScaledObject": 54}


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


def test_queues_of_documents_have_a_model_for_documents_and_the_others_one_for_tickets() -> None:
    models = {
        queue: {name for name in env(deployment["spec"]["template"]["spec"]["containers"][0]) if name.endswith("MODEL")}
        for queue, deployment in workers(rendered(case("keda")))
    }
    documents = {queue for queue, names in models.items() if names == {"BATCHMILL_OCR_MODEL"}}

    assert documents == {"ocr", "bulk-ocr"}
    assert all(models[queue] == {"BATCHMILL_MODEL"} for queue in models.keys() - documents)


def test_a_model_on_a_volume_is_only_read() -> None:
    deployment = named(rendered(case("irsa")), "Deployment", "prod-batchmill-ocr")
    spec = deployment["spec"]["template"]["spec"]
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "models")

    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert env(spec["containers"][0])["BATCHMILL_OCR_MODEL"] == "ocr-accurate-3"


@pytest.mark.parametrize("length", [1, 23, 24, 30, 40, 53])
@pytest.mark.parametrize("name", ["keda", "airgapped", "everything"])
def test_names_fit_however_long_the_release_s_is(name: str, length: int) -> None:
    documents = rendered(case(name), release=LONGEST_RELEASE[:length].rstrip("-"))
    for document in documents:
        called = document["metadata"]["name"]

        assert len(called) <= LONGEST.get(document["kind"], 63)
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", called)
        assert all(len(value) <= 63 for value in document["metadata"]["labels"].values())
    for _, template in pod_templates(documents):
        assert all(len(value) <= 63 for value in template["metadata"]["labels"].values())


def test_two_long_releases_keep_apart() -> None:
    first = rendered(case("minimal"), release=LONGEST_RELEASE)
    second = rendered(case("minimal"), release=LONGEST_RELEASE[:-1] + "x")

    assert {d["metadata"]["name"] for d in first}.isdisjoint({d["metadata"]["name"] for d in second})
