"""Counting by metric and labels, and what is published of it."""

from __future__ import annotations

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from worker.metrics import BATCH_ITEMS, CATALOGUE, HELD, JOBS, STAGE, Side
from worker.ops.publishing import Publisher
from worker.tallies import Distribution, Tallies


@pytest.fixture
def tallies() -> Tallies:
    return Tallies()


def test_amounts_add_up_by_labels(tallies: Tallies) -> None:
    tallies.add((JOBS, ("a", "failed"), 1), (JOBS, ("a", "failed"), 2), (JOBS, ("b", "failed"), 0))
    assert tallies.numbers(JOBS) == {("a", "failed"): 3, ("b", "failed"): 0}
    assert tallies.numbers(HELD) == {}


def test_a_histogram_counts_a_value_at_its_bound_within_it(tallies: Tallies) -> None:
    tallies.observe(BATCH_ITEMS, ("tiny",), [1, 2, 3, 300])
    assert tallies.distributions(BATCH_ITEMS) == {("tiny",): Distribution((1, 2, 3, 3, 3, 3, 3, 3, 3, 4), 306)}
    assert tallies.distributions(STAGE) == {}


def test_a_watched_gauge_is_read_when_somebody_looks(tallies: Tallies) -> None:
    held = {("classify",): 1.0}
    tallies.watch(HELD, lambda: held)
    held["bulk",] = 2.0
    assert tallies.numbers(HELD) == {("classify",): 1.0, ("bulk",): 2.0}


def test_nothing_is_lost_between_threads(tallies: Tallies) -> None:
    def count() -> None:
        for _ in range(2000):
            tallies.add((JOBS, ("a", "failed"), 1))
            tallies.observe(BATCH_ITEMS, ("tiny",), (1,))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tallies.numbers(JOBS) == {("a", "failed"): 8000}
    assert tallies.distributions(BATCH_ITEMS)["tiny",].cumulated[0] == 8000


@pytest.mark.parametrize("side", Side)
def test_each_side_publishes_its_part_of_the_catalogue_with_type_and_help(tallies: Tallies, side: Side) -> None:
    body, content_type = Publisher(tallies, side).text("")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    expected = {metric.name.removesuffix("_total"): metric for metric in CATALOGUE if metric.side is side}
    assert content_type.startswith("text/plain")
    assert {name for name in families if name.startswith("batchmill_")} == set(expected)
    for name, metric in expected.items():
        assert (families[name].type, families[name].documentation) == (metric.kind, metric.help)
    assert {"process_cpu_seconds", "python_info"} <= set(families)


def test_values_are_published_as_they_were_counted(tallies: Tallies) -> None:
    tallies.add((JOBS, ("classify.tickets", "succeeded"), 3))
    tallies.observe(STAGE, ("commit",), [0.001, 0.3])
    body, _ = Publisher(tallies, Side.WORKER).text("text/plain")
    lines = body.decode().splitlines()
    assert 'batchmill_jobs_total{state="succeeded",task="classify.tickets"} 3.0' in lines
    assert 'batchmill_stage_seconds_bucket{le="0.001",stage="commit"} 1.0' in lines
    assert 'batchmill_stage_seconds_bucket{le="+Inf",stage="commit"} 2.0' in lines
    assert 'batchmill_stage_seconds_sum{stage="commit"} 0.301' in lines


def test_a_scraper_that_asks_for_openmetrics_gets_it(tallies: Tallies) -> None:
    body, content_type = Publisher(tallies, Side.WORKER).text("application/openmetrics-text;version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
