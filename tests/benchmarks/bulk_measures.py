"""From bulk runs to the named figures: pure arithmetic over what was measured, and the goal of each figure.

As in `measures`, a ratio is taken within a round and the median over the rounds is reported. It starts nothing and
reads no clock.
"""

from __future__ import annotations

from statistics import mean, median
from typing import TYPE_CHECKING, Final

from tests.benchmarks.bulk_runs import BulkRun
from tests.benchmarks.measures import OURS, Round, cpu_ms, jobs_per_s, p50_ms, p99_ms, padding, unlike
from tests.benchmarks.ray_runs import RAY
from tests.benchmarks.report import Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.benchmarks.runs import Run


GOALS: Final[Mapping[str, Goal]] = {
    "share_of_raw": Goal(0.95, 0.98),
    "cost_of_50ms_storage": Goal(0.05, 0.02, at_most=True),
    "two_workers_speedup": Goal(1.8, 1.95),
    "two_workers_cpu_per_row": Goal(1.05, 1.02, at_most=True),
    "rss_growth_10x": Goal(1.1, 1.05, at_most=True),
    "rows_500k_tiny": Goal(500_000, 500_000),
    "interactive_p99_batches": Goal(3.0, 2.0, at_most=True),
    "labels_unlike_raw": Goal(0.0, 0.0, at_most=True),
}


def figures(rounds: Sequence[Round]) -> dict[str, float]:
    """The figures by name; the runs that were made once are in the first round."""

    def middle(figure: Callable[[Round], float]) -> float:
        return median(figure(of) for of in rounds)

    return {
        "share_of_raw": middle(lambda r: _raw_cpu_ms(r, "minilm") / cpu_ms(_ours(r, "minilm"))),
        "share_of_raw_tiny": middle(lambda r: _raw_cpu_ms(r, "tiny") / cpu_ms(_ours(r, "tiny"))),
        "beyond_raw_us_per_row_tiny": middle(lambda r: 1e3 * (cpu_ms(_ours(r, "tiny")) - _raw_cpu_ms(r, "tiny"))),
        "planning_s": middle(lambda r: _ours(r, "minilm").planning_s),
        "planning_cpu_s": middle(lambda r: _ours(r, "minilm").planning_cpu_s),
        "padding_waste_raw": middle(lambda r: padding(_raw(r, "minilm"))),
        **_storage(rounds),
        **_two_workers(rounds),
        **_interactive(rounds),
        **_large(rounds),
        "labels_unlike_raw": sum(
            unlike(_ours(of, name), _raw(of, name)) for of in rounds for name in ("minilm", "tiny")
        ),
        **_ray(rounds),
    }


def _ours(of: Round, model: str, kind: str = "throughput") -> BulkRun:
    run = of[OURS, model, kind]
    assert isinstance(run, BulkRun)
    return run


def _raw(of: Round, model: str) -> Run:
    return of["raw", model, "windows"]


def _raw_cpu_ms(of: Round, model: str) -> float:
    """The mean of the two runs around the worker's."""
    return mean(cpu_ms(of["raw", model, kind]) for kind in ("windows", "windows-again"))


def _storage(rounds: Sequence[Round]) -> dict[str, float]:
    """What a far store costs, and how often it is asked.

    The second figure leaves out by how much the machine's own speed changed between the two runs.
    """
    pairs = [
        (_ours(of, "minilm", "near"), _ours(of, "minilm", "far")) for of in rounds if (OURS, "minilm", "far") in of
    ]
    return {
        "cost_of_50ms_storage": median(far.wall_s / near.wall_s for near, far in pairs) - 1,
        "cost_of_50ms_storage_per_cpu_s": median(
            (far.wall_s / far.cpu_s) / (near.wall_s / near.cpu_s) for near, far in pairs
        )
        - 1,
        "planning_added_by_50ms_s": median(far.planning_s - near.planning_s for near, far in pairs),
        "planning_requests": median(far.planning_requests for _, far in pairs),
        "requests_per_shard": median(far.requests / far.shards for _, far in pairs),
    }


def _two_workers(rounds: Sequence[Round]) -> dict[str, float]:
    """Two workers with a core each beside one, where the machine has two cores."""
    ones = ("pinned-1", "pinned-1-again")
    trios = [
        ([_ours(of, "minilm", kind) for kind in ones], _ours(of, "minilm", "pinned-2"))
        for of in rounds
        if (OURS, "minilm", "pinned-2") in of
    ]
    if not trios:
        return {}
    return {
        "two_workers_speedup": median(jobs_per_s(two) / mean(map(jobs_per_s, one)) for one, two in trios),
        "two_workers_cpu_per_row": median(cpu_ms(two) / mean(map(cpu_ms, one)) for one, two in trios),
    }


def _interactive(rounds: Sequence[Round]) -> dict[str, float]:
    """Latency of single tickets under a bulk run, in milliseconds and in full batches of the same model."""
    rounds = [of for of in rounds if (OURS, "minilm", "interactive") in of]
    runs = [_ours(of, "minilm", "interactive") for of in rounds]
    batch_ms = median(p50_ms(of["raw", "minilm", "full"]) for of in rounds)
    p50, p99 = median(p50_ms(run) for run in runs), p99_ms(runs)
    return {
        "full_batch_ms": batch_ms,
        "interactive_p50_ms": p50,
        "interactive_p99_ms": p99,
        "interactive_p50_batches": p50 / batch_ms,
        "interactive_p99_batches": p99 / batch_ms,
    }


def _large(rounds: Sequence[Round]) -> dict[str, float]:
    """The large file, and its memory beside that of a tenth of it, whose peak differs from worker to worker."""
    large = _ours(rounds[0], "tiny", "rows-10x")
    small_mib = median(_ours(of, "tiny", "rows-1x").rss_mib for of in rounds if (OURS, "tiny", "rows-1x") in of)
    return {
        "peak_rss_mib_1x": small_mib,
        "peak_rss_mib_10x": large.rss_mib,
        "rss_growth_10x": large.rss_mib / small_mib,
        "rows_500k_tiny": large.jobs,
        "rows_500k_tiny_parts": large.parts,
        "rows_500k_tiny_wall_s": large.planning_s + large.wall_s,
        "rows_500k_tiny_per_s": large.jobs / (large.planning_s + large.wall_s),
    }


def _ray(rounds: Sequence[Round]) -> dict[str, float]:
    """Ray Data's cost of a row over ours, and our speed over its; where it ran."""
    pairs = [
        (of[RAY, "minilm", "throughput"], _ours(of, "minilm")) for of in rounds if (RAY, "minilm", "throughput") in of
    ]
    if not pairs:
        return {}
    return {
        "vs_ray_data": median(cpu_ms(ray) / cpu_ms(ours) for ray, ours in pairs),
        "vs_ray_data_speed": median(jobs_per_s(ours) / jobs_per_s(ray) for ray, ours in pairs),
    }
