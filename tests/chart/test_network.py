"""The network policies: nothing in but metrics, nothing out but names, database and object store."""

from __future__ import annotations

from tests.chart.rendering import case, named, of_kind, rendered


def test_without_being_asked_there_is_none() -> None:
    assert not of_kind(rendered(case("minimal")), "NetworkPolicy")


def test_every_pod_is_closed_both_ways() -> None:
    spec = named(rendered(case("managed-redis")), "NetworkPolicy", "prod-batchmill")["spec"]

    assert spec["podSelector"]["matchLabels"] == {
        "app.kubernetes.io/name": "batchmill",
        "app.kubernetes.io/instance": "prod",
    }
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == []


def test_what_goes_out_has_a_port_and_a_place() -> None:
    egress = named(rendered(case("managed-redis")), "NetworkPolicy", "prod-batchmill")["spec"]["egress"]
    names, *places = egress

    assert {port["port"] for port in names["ports"]} == {53}
    assert [(rule["ports"][0]["port"], rule["to"][0]["ipBlock"]["cidr"]) for rule in places] == [
        (6380, "10.20.0.0/16"),
        (443, "10.30.0.0/16"),
        (443, "10.40.0.0/16"),
    ]


def test_metrics_come_from_prometheus_and_the_backlog_from_keda() -> None:
    documents = rendered(case("managed-redis"))
    metrics = named(documents, "NetworkPolicy", "prod-batchmill-metrics")["spec"]
    keda = named(documents, "NetworkPolicy", "prod-batchmill-keda")["spec"]

    assert metrics["podSelector"]["matchExpressions"][0]["values"] == ["worker", "exporter"]
    assert (
        metrics["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        == "monitoring"
    )
    assert keda["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "exporter"
    assert keda["ingress"][0]["from"][0]["podSelector"]["matchLabels"] == {"app": "keda-operator"}
    assert {rule["ports"][0]["port"] for policy in (metrics, keda) for rule in policy["ingress"]} == {"http"}
