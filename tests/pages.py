"""What a process of ours answers over HTTP, as a probe or a scraper sees it."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class Page(NamedTuple):
    """An answer; status 0 = none."""

    status: int
    body: str

    @property
    def reasons(self) -> list[str]:
        """Why not, of a probe."""
        said: dict[str, Any] = json.loads(self.body)
        assert said["ok"] is (self.status == 200)
        return list(said["reasons"])


def get(port: int, path: str, method: str = "GET", **headers: str) -> Page:
    """Ask; never raises."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, headers=headers)
        with connection.getresponse() as answer:
            return Page(answer.status, answer.read().decode())
    except (OSError, http.client.HTTPException) as exc:
        return Page(0, type(exc).__name__)
    finally:
        connection.close()


class Scrape:
    """The samples of one scrape.

    Attributes:
        kinds: type by family; a counter's family is called without `_total`.
        values: by the sample's name and its label values, in the order of the labels' names.
    """

    def __init__(self, port: int) -> None:
        page = get(port, "/metrics")
        assert page.status == 200
        families = list(text_string_to_metric_families(page.body))
        self.kinds = {family.name: family.type for family in families}
        self.values = {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    def __getitem__(self, key: tuple[str, ...]) -> float:
        """Return a value, 0 for what is not there."""
        return self.values.get(key, 0.0)

    def ours(self) -> dict[str, str]:
        """Return what is ours: type by name as the catalogue spells it, only of families that have a sample."""
        named = {f"{name}_total" if kind == "counter" else name: kind for name, kind in self.kinds.items()}
        sampled = {name for name, *_ in self.values}
        return {
            name: kind
            for name, kind in named.items()
            if name.startswith("batchmill_") and sampled & {name, f"{name}_count"}
        }
