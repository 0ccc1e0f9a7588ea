"""From runs to the named figures: pure arithmetic over what was measured, and the goal of each figure.

A ratio is taken within a round, where its two runs stood next to each other, and the median over the rounds
is reported: a slow minute of a shared machine then moves both sides. It starts nothing and reads no clock.
"""

from __future__ import annotations

from statistics import median, quantiles
from typing import TYPE_CHECKING

from tests.benchmarks.report import Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.benchmarks.runs import Run

OURS = "batchmill"
DATA_SET = "data-"  # starts the kind of a run over real tickets

Key = tuple[str, str, str]  # who, model, kind
Round = dict[Key, "Run"]


GOALS: Mapping[str, Goal] = {
    "share_of_raw_minilm": Goal(0.93, 0.97),
    "share_of_raw_tiny": Goal(0.65, 0.80),
    "noop_cpu_vs_prefork": Goal(5.0, 10.0),
    "vs_prefork_tiny": Goal(2.5, 4.0),
    "vs_celery_batches_tiny": Goal(1.7, 2.5),
    "round_trips_per_job": Goal(0.1, 0.05, at_most=True),
    "padding_waste": Goal(0.05, 0.03, at_most=True),
    "p50_over_model_ms": Goal(5.0, 3.0, at_most=True),
    "two_workers_speedup": Goal(1.8, 1.95),
    "worker_rss_mib": Goal(381.0, 286.0, at_most=True),
}


def key(run: Run) -> Key:
    """How a round finds the run."""
    return run.who, run.model, run.kind


def cpu_ms(run: Run) -> float:
    """CPU milliseconds of a job at the worker."""
    return 1e3 * run.cpu_s / run.jobs


def jobs_per_s(run: Run) -> float:
    """Throughput."""
    return run.jobs / run.wall_s


def padding(run: Run) -> float:
    """Padded over real tokens, less one."""
    return run.padded_tokens / run.real_tokens - 1


def p50_ms(run: Run) -> float:
    """Median of the latencies."""
    return 1e3 * median(run.latencies_s)


def server_ms(run: Run) -> float:
    """CPU milliseconds of a job at the server."""
    return 1e3 * run.server_cpu_s / run.jobs


def p99_ms(runs: Sequence[Run]) -> float:
    """The 99th percentile over the latencies of all the runs together."""
    return 1e3 * quantiles([s for run in runs for s in run.latencies_s], n=100, method="inclusive")[98]


def measures(rounds: Sequence[Round], prefork: str, batches: Sequence[str]) -> dict[str, float]:
    """The figures by name.

    Args:
        rounds: the runs of each round; runs that were made once are in the first.
        prefork: title of plain Celery with the prefork pool.
        batches: titles of the forms of celery-batches, of which the faster one counts.
    """

    def ours(of: Round, model: str, kind: str = "throughput") -> Run:
        return of[OURS, model, kind]

    def peer(of: Round, model: str) -> Run:
        return of[prefork, model, "throughput"]

    def in_batches(of: Round) -> float:
        return max(jobs_per_s(of[who, "tiny", "throughput"]) for who in batches)

    def middle(figure: Callable[[Round], float]) -> float:
        return median(figure(of) for of in rounds)

    counted = ours(rounds[0], "tiny", "counted")
    return {
        "share_of_raw_minilm": middle(lambda r: cpu_ms(r["raw", "minilm", "windows"]) / cpu_ms(ours(r, "minilm"))),
        "share_of_raw_tiny": middle(lambda r: cpu_ms(r["raw", "tiny", "windows"]) / cpu_ms(ours(r, "tiny"))),
        "noop_cpu_ms_per_job": middle(lambda r: cpu_ms(ours(r, "noop"))),
        "noop_cpu_vs_prefork": middle(lambda r: cpu_ms(peer(r, "noop")) / cpu_ms(ours(r, "noop"))),
        "vs_prefork_tiny": middle(lambda r: jobs_per_s(ours(r, "tiny")) / jobs_per_s(peer(r, "tiny"))),
        "vs_prefork_minilm": middle(lambda r: jobs_per_s(ours(r, "minilm")) / jobs_per_s(peer(r, "minilm"))),
        "vs_celery_batches_tiny": middle(lambda r: jobs_per_s(ours(r, "tiny")) / in_batches(r)),
        "round_trips_per_job": counted.round_trips / counted.jobs,
        "marks_per_job": counted.marks / counted.jobs,
        "redis_commands_per_job": counted.commands / counted.jobs,
        "padding_waste": middle(lambda r: padding(ours(r, "minilm"))),
        "p50_over_model_ms": middle(lambda r: p50_ms(ours(r, "minilm")) - p50_ms(r["raw", "minilm", "single"])),
        "p99_at_20_per_s_ms": p99_ms([ours(of, "minilm") for of in rounds]),
        **_speedup(rounds),
        "worker_rss_mib": middle(lambda r: ours(r, "minilm").rss_mib),
        "labels_unlike_raw": sum(unlike(ours(of, "minilm"), of["raw", "minilm", "windows"]) for of in rounds),
        **_real_padding(rounds[0]),
    }


def _speedup(rounds: Sequence[Round]) -> dict[str, float]:
    """Two workers with a core each over one, where the machine has two cores."""
    one, two = ((OURS, "minilm", f"pinned-{count}") for count in (1, 2))
    ratios = [jobs_per_s(of[two]) / jobs_per_s(of[one]) for of in rounds if two in of]
    return {"two_workers_speedup": median(ratios)} if ratios else {}


def _real_padding(first: Round) -> dict[str, float]:
    """Padding waste over the texts of real data sets, as far as they were run."""
    waste = {kind: padding(run) for (_, _, kind), run in first.items() if kind.startswith(DATA_SET)}
    return {f"padding_waste_{kind.removeprefix(DATA_SET)}": value for kind, value in waste.items()}


def unlike(run: Run, raw: Run) -> int:
    """Tickets with another label than in the raw loop; truncated ones are cut differently: not counted."""
    return sum(ours not in (None, theirs) for ours, theirs in zip(run.labels, raw.labels, strict=True))
