"""A Deployment's rolling update without a cluster: pods are processes, started, probed and ended as a kubelet does.

All numbers come from a Deployment as the chart renders it: probes, grace, surge, environment. What the harness knows is
Kubernetes' side: when a pod counts as ready, when an old one is told to stop, and when it is killed. Pods share this
machine's network, so each gets a port of its own instead of the one in the manifest.
"""

from __future__ import annotations

import math
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.request import urlopen

from tests.services import free_port, wait_until
from worker.settings import ENV_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.services import WorkerProcess

READY_TIMEOUT_S: Final = 120.0
OK: Final = range(200, 400)  # what a kubelet takes for success
# What a pod of the test has otherwise: the test's own database, model and network.
REPLACED: Final = frozenset({"broker_url", "model", "models_dir", "http_port", "http_host"})


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe over HTTP; what a manifest leaves out is Kubernetes' default. Seconds."""

    path: str
    initial_delay_s: float
    period_s: float
    timeout_s: float
    failures: int

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Probe:
        """Read one of a container's probes."""
        return cls(
            manifest["httpGet"]["path"],
            manifest.get("initialDelaySeconds", 0),
            manifest.get("periodSeconds", 10),
            manifest.get("timeoutSeconds", 1),
            manifest.get("failureThreshold", 3),
        )

    def succeeds(self, port: int) -> bool:
        """Ask once. Blocks for `timeout_s` at most."""
        try:
            with urlopen(f"http://127.0.0.1:{port}{self.path}", timeout=self.timeout_s) as answer:
                return answer.status in OK
        except OSError:  # as a status that says no, a refused connection and a time-out all are
            return False


@dataclass(frozen=True, slots=True)
class Template:
    """What a Deployment says of its pods.

    Attributes:
        replicas: how many.
        surge: how many more while it is updated.
        min_ready_s: how long a pod must have been ready before it counts.
        grace_s: from SIGTERM to SIGKILL.
        startup, liveness, readiness: the probes; a pod without a startup probe has started at once.
        settings: of the worker, without their prefix, but for those that are `REPLACED` or come from Secrets.
    """

    replicas: int
    surge: int
    min_ready_s: float
    grace_s: float
    startup: Probe | None
    liveness: Probe
    readiness: Probe
    settings: Mapping[str, str]

    @classmethod
    def of(cls, deployment: Mapping[str, Any], replicas: int) -> Template:
        """Read a rendered Deployment, to be run with so many pods."""
        spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        update = spec["strategy"]["rollingUpdate"]
        assert update["maxUnavailable"] == 0, "an update must not take away a worker before there is another"
        return cls(
            replicas=replicas,
            surge=_surge(update["maxSurge"], replicas),
            min_ready_s=spec.get("minReadySeconds", 0),
            grace_s=pod["terminationGracePeriodSeconds"],
            startup=Probe.of(container["startupProbe"]) if "startupProbe" in container else None,
            liveness=Probe.of(container["livenessProbe"]),
            readiness=Probe.of(container["readinessProbe"]),
            settings=dict(_settings(container["env"])),
        )


def _surge(value: int | str, replicas: int) -> int:
    """Return how many pods more, as Kubernetes rounds: up."""
    return value if isinstance(value, int) else math.ceil(replicas * int(value.removesuffix("%")) / 100)


def _settings(environment: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for entry in environment:
        name = entry["name"].removeprefix(ENV_PREFIX).lower()
        if entry["name"].startswith(ENV_PREFIX) and name not in REPLACED and "value" in entry:
            yield name, str(entry["value"])


class Pod:
    """One worker and the kubelet that watches it.

    Args:
        template: of the Deployment.
        worker: it has just been started.
        port: on which it answers.

    Attributes:
        restarts: that a kubelet would have made for want of life; nothing is restarted here.
        exit_code: once it was ended by itself within the grace; None if it had to be killed.
    """

    def __init__(self, template: Template, worker: WorkerProcess, port: int) -> None:
        self._template = template
        self._worker = worker
        self._port = port
        self._over = threading.Event()
        self._ready_since_s: float | None = None
        self._probes: list[threading.Thread] = []
        self.restarts = 0
        self.exit_code: int | None = None
        self._probe_by(self._watch_start)

    def wait_available(self) -> None:
        """Wait until it has been ready for as long as the template asks; fail with its log if it ends before."""
        wait_until(
            lambda: self._is_available() or self._worker.process.poll() is not None, READY_TIMEOUT_S, "the pod is ready"
        )
        assert self._worker.process.poll() is None, self._worker.lines

    def end(self) -> None:
        """SIGTERM, the grace, SIGKILL. A pod that is being ended is not asked for life any more."""
        self.unwatch()
        self._worker.send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):  # then it has been killed
            self.exit_code = self._worker.wait(self._template.grace_s)

    def unwatch(self) -> None:
        """End the probes."""
        self._over.set()
        for thread in self._probes:
            thread.join()

    def _is_available(self) -> bool:
        since_s = self._ready_since_s
        return since_s is not None and time.monotonic() - since_s >= self._template.min_ready_s

    def _probe_by(self, watch: Callable[[], None]) -> None:
        self._probes.append(threading.Thread(target=watch, name="kubelet"))
        self._probes[-1].start()

    def _watch_start(self) -> None:
        probe = self._template.startup
        if probe is None or any(probe.succeeds(self._port) for _ in self._ticks(probe)):
            self._probe_by(self._watch_life)
            self._watch_readiness()

    def _watch_life(self) -> None:
        probe, failures = self._template.liveness, 0
        for _ in self._ticks(probe):
            failures = 0 if probe.succeeds(self._port) else failures + 1
            self.restarts += failures == probe.failures

    def _watch_readiness(self) -> None:
        probe, failures = self._template.readiness, 0
        for _ in self._ticks(probe):
            failures = 0 if probe.succeeds(self._port) else failures + 1
            if failures == 0:
                self._ready_since_s = self._ready_since_s or time.monotonic()
            elif failures >= probe.failures:
                self._ready_since_s = None

    def _ticks(self, probe: Probe) -> Iterator[None]:
        """Yield after the probe's delay and then once a period, until the pod is ended."""
        wait_s = probe.initial_delay_s
        while not self._over.wait(wait_s):
            yield
            wait_s = probe.period_s


class Deployment:
    """So many pods, replaced one after the other. Leaving its context ends what is left.

    Args:
        template: what the chart says.
        start: starts a worker with settings, as `WorkerProcess` takes them.

    Attributes:
        ended: pods that an update has ended.
    """

    def __init__(self, template: Template, start: Callable[..., WorkerProcess]) -> None:
        self._template = template
        self._start = start
        self._pods: list[Pod] = []
        self.ended: list[Pod] = []

    def __enter__(self) -> Self:
        try:
            self._add(self._template.replicas)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pod in self._pods:
            pod.end()

    def update(self) -> None:
        """Replace every pod: first the new one, and when it counts, the old one is told to go; wait for their ends.

        As in Kubernetes a pod that is going does not keep the next one from coming.
        """
        old = self._pods[:]
        ends = []
        while old:
            count = min(self._template.surge, len(old))
            self._add(count)
            for pod in old[:count]:
                self._pods.remove(pod)
                ends.append(threading.Thread(target=pod.end, name="end"))
                ends[-1].start()
                self.ended.append(pod)
            del old[:count]
        for end in ends:
            end.join()

    def _add(self, count: int) -> None:
        added = []
        for _ in range(count):
            port = free_port()
            worker = self._start(http_port=port, http_host="127.0.0.1", **self._template.settings)
            added.append(Pod(self._template, worker, port))
        self._pods += added
        for pod in added:
            pod.wait_available()
