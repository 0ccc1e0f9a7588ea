"""What every pod keeps to: the restricted standard, secrets by reference, probes without a shell, known options."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from tests.chart.rendering import Document, case, containers, env, of_kind, pod_templates, rendered
from worker.settings import ENV_PREFIX, Settings, env_name, load

if TYPE_CHECKING:
    import pytest

SECRET_NAMES = re.compile(r"PASSW|SECRET|TOKEN(?!S)|CREDENTIAL|ACCESS_KEY", re.IGNORECASE)


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
        assert list(variables).index(source["name"]) <= list(variables).index("BATCHMILL_BROKER_URL"), where
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


def test_an_account_has_its_role() -> None:
    documents = rendered(case("irsa"))
    (account,) = of_kind(documents, "ServiceAccount")

    assert account["metadata"]["name"] == "batchmill-lake"
    assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].endswith("role/batchmill-lake")
    assert {template["spec"]["serviceAccountName"] for _, template in pod_templates(documents)} == {"batchmill-lake"}
    assert not any(name.startswith("AWS_ACCESS") for _, container in containers(documents) for name in env(container))


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
