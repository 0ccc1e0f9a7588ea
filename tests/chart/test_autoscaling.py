"""Scaling: who owns the number of replicas, what KEDA asks, and what it falls back to."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import pytest

from schemas.names import queue_lists, unacked_key
from tests.chart.rendering import Document, case, containers, env, named, of_kind, rendered, workers

KEDA_CASES = ("keda", "managed-redis", "keda-replicas")
WITH_LISTS = ("keda", "managed-redis")
BULK_TARGETS = {("keda", "classify"): "3600"}  # of all others: 1800


def triggers(scaled: Document) -> dict[str, Document]:
    return {trigger["name"]: trigger for trigger in scaled["spec"]["triggers"]}


def queue_of(document: Document) -> str:
    return document["metadata"]["labels"]["batchmill/queue"]


def evaluated(formula: str, seen: dict[str, float | None]) -> float | None:
    """Evaluate a formula of KEDA's language that uses only `??`, `? :`, `== nil` and sums."""
    first, _, rest = formula.partition(" ?? ")
    if seen[first] is not None:
        return seen[first]
    condition, _, branches = rest.strip("()").partition(" ? ")
    nothing, _, otherwise = branches.partition(" : ")
    assert condition.endswith(" == nil")
    assert nothing == "nil"
    if seen[condition.removesuffix(" == nil")] is None:
        return None
    total, rate = re.fullmatch(r"\(([\w +]+)\) / ([\d.e-]+)", otherwise).groups()
    return sum(seen[name] for name in total.split(" + ")) / float(rate)


def test_replicas_are_set_where_nothing_else_sets_them(documents: list[Document]) -> None:
    scaled = {
        document["spec"]["scaleTargetRef"]["name"]
        for document in documents
        if document["kind"] in {"ScaledObject", "HorizontalPodAutoscaler"}
    }
    for deployment in of_kind(documents, "Deployment"):
        assert ("replicas" in deployment["spec"]) != (deployment["metadata"]["name"] in scaled)


def test_every_scaler_has_its_deployment(documents: list[Document]) -> None:
    for scaler in (*of_kind(documents, "ScaledObject"), *of_kind(documents, "HorizontalPodAutoscaler")):
        deployment = named(documents, "Deployment", scaler["spec"]["scaleTargetRef"]["name"])

        assert queue_of(deployment) == queue_of(scaler)


@pytest.mark.parametrize("name", KEDA_CASES)
def test_keda_asks_the_exporter_for_the_backlog(name: str) -> None:
    documents = rendered(case(name))
    scaled_objects = of_kind(documents, "ScaledObject")
    service = named(documents, "Service", "prod-batchmill-exporter")

    assert len(scaled_objects) == len(dict(workers(documents)))
    for scaled in scaled_objects:
        trigger = triggers(scaled)["backlog_s"]
        host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
        url = urlsplit(trigger["metadata"]["url"])
        bulk_target = BULK_TARGETS.get((name, queue_of(scaled)), "1800")

        assert trigger["type"] == "metrics-api"
        assert f"{url.scheme}://{url.netloc}{url.path}" == f"http://{host}:9464/queues/{queue_of(scaled)}"
        assert parse_qsl(url.query, strict_parsing=True) == [
            ("target_s", trigger["metadata"]["targetValue"]),
            ("bulk_target_s", bulk_target),
        ]
        assert trigger["metadata"]["valueLocation"] == "backlog_s"


@pytest.mark.parametrize("name", WITH_LISTS)
def test_the_fallback_reads_the_keys_that_the_worker_writes(name: str) -> None:
    for scaled in of_kind(rendered(case(name)), "ScaledObject"):
        queue, found = queue_of(scaled), triggers(scaled)
        lists = [found[f"waiting_{step}"]["metadata"]["listName"] for step in (0, 3, 6, 9)]

        assert tuple(lists) == queue_lists(queue)
        assert found["in_flight"]["metadata"]["listName"] == unacked_key(queue)


@pytest.mark.parametrize("name", WITH_LISTS)
def test_the_formula_names_its_triggers_and_no_others(name: str) -> None:
    for scaled in of_kind(rendered(case(name)), "ScaledObject"):
        modifiers = scaled["spec"]["advanced"]["scalingModifiers"]
        used = set(re.findall(r"[a-z]\w*", modifiers["formula"])) - {"nil"}

        assert used == set(triggers(scaled))
        assert len(scaled["spec"]["triggers"]) == len(used)
        assert scaled["spec"]["fallback"]["behavior"] == "scalingModifiers"


@pytest.mark.parametrize("name", WITH_LISTS)
def test_the_formula_falls_back_to_the_work_that_the_database_holds(name: str) -> None:
    for scaled in of_kind(rendered(case(name)), "ScaledObject"):
        formula = scaled["spec"]["advanced"]["scalingModifiers"]["formula"]
        rate = float(formula.rpartition("/ ")[2].rstrip(")"))
        lists = {"waiting_0": 8.0, "waiting_3": 4.0, "waiting_6": 2.0, "waiting_9": 1.0, "in_flight": 10.0}

        assert evaluated(formula, {"backlog_s": 7.0, **lists}) == 7.0
        assert evaluated(formula, {"backlog_s": 0.0, **lists}) == 0.0
        assert evaluated(formula, {"backlog_s": None, **lists}) == 25 / rate
        assert evaluated(formula, dict.fromkeys(["backlog_s", *lists])) is None  # KEDA takes fallback.replicas


@pytest.mark.parametrize("name", WITH_LISTS)
def test_the_fallback_counts_at_the_rate_that_the_exporter_starts_with(name: str) -> None:
    documents = rendered(case(name))
    variables = env(dict(containers(documents))["prod-batchmill-exporter/exporter"])
    rates = dict(pair.split("=") for pair in variables["BATCHMILL_DEFAULT_RATES"].split(","))

    assert set(variables["BATCHMILL_QUEUES"].split(",")) == set(rates) == set(dict(workers(documents)))
    for scaled in of_kind(documents, "ScaledObject"):
        formula = scaled["spec"]["advanced"]["scalingModifiers"]["formula"]

        assert formula.endswith(f") / {rates[queue_of(scaled)]})")


@pytest.mark.parametrize("name", WITH_LISTS)
def test_keda_ignores_a_fallback_whose_target_is_no_whole_number(name: str) -> None:
    for scaled in of_kind(rendered(case(name)), "ScaledObject"):
        target = scaled["spec"]["advanced"]["scalingModifiers"]["target"]

        assert int(target) > 0
        assert triggers(scaled)["backlog_s"]["metadata"]["targetValue"] == target


def test_a_managed_database_is_asked_with_tls_user_and_password() -> None:
    documents = rendered(case("managed-redis"))
    (authentication,) = of_kind(documents, "TriggerAuthentication")
    (password,) = authentication["spec"]["secretTargetRef"]
    (authority,) = authentication["spec"]["configMapTargetRef"]

    assert password == {"parameter": "password", "name": "elasticache", "key": "keda-password"}
    assert authority == {"parameter": "ca", "name": "redis-ca", "key": "ca.pem"}
    for scaled in of_kind(documents, "ScaledObject"):
        for trigger in scaled["spec"]["triggers"][1:]:
            assert trigger["authenticationRef"] == {"name": authentication["metadata"]["name"]}
            assert trigger["metadata"]["enableTLS"] == "true"
            assert trigger["metadata"]["username"] == "keda"
            assert trigger["metadata"]["databaseIndex"] == "2"
            assert trigger["metadata"]["address"].endswith(":6380")


def test_a_database_that_keda_cannot_reach_leaves_the_replicas_that_are_there() -> None:
    documents = rendered(case("keda-replicas"))
    scaled = named(documents, "ScaledObject", "prod-batchmill-classify")["spec"]

    assert not of_kind(documents, "TriggerAuthentication")
    assert list(triggers({"spec": scaled})) == ["backlog_s"]
    assert scaled["fallback"] == {"failureThreshold": 3, "replicas": 3, "behavior": "currentReplicasIfHigher"}


def test_a_queue_scales_to_zero_by_itself() -> None:
    least = {
        queue_of(scaled): scaled["spec"]["minReplicaCount"]
        for scaled in of_kind(rendered(case("keda")), "ScaledObject")
    }

    assert least == {"classify": 2, "bulk": 0, "ocr": 0, "bulk-ocr": 0, "tickets-de-dach-2026": 0}


def test_least_is_not_above_most(documents: list[Document]) -> None:
    for scaled in of_kind(documents, "ScaledObject"):
        assert scaled["spec"]["minReplicaCount"] <= scaled["spec"]["maxReplicaCount"]
        assert scaled["spec"]["fallback"]["replicas"] <= scaled["spec"]["maxReplicaCount"]
    for hpa in of_kind(documents, "HorizontalPodAutoscaler"):
        assert 1 <= hpa["spec"]["minReplicas"] <= hpa["spec"]["maxReplicas"]


def test_without_keda_a_queue_scales_by_cpu_or_by_its_backlog() -> None:
    (cpu,) = named(rendered(case("hpa")), "HorizontalPodAutoscaler", "prod-batchmill-classify")["spec"]["metrics"]
    (backlog,) = named(rendered(case("hpa-backlog")), "HorizontalPodAutoscaler", "prod-batchmill-bulk")["spec"][
        "metrics"
    ]

    assert cpu["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 65}}
    assert backlog["external"]["metric"] == {
        "name": "batchmill:wanted_backlog_seconds",
        "selector": {"matchLabels": {"queue": "bulk"}},
    }
    assert backlog["external"]["target"] == {"type": "AverageValue", "averageValue": "1800"}
