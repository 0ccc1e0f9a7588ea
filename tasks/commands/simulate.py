"""`batchmill simulate`: how an autoscaling policy would have fared, before anyone deploys it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tasks.commands.failures import reported
from tasks.commands.view import Grid, View, show
from worker.ops.simulation.autoscaler import DEFAULT_DOWN, Limits, Scaling
from worker.ops.simulation.picture import check, draw
from worker.ops.simulation.policies import Surroundings
from worker.ops.simulation.service_curve import MEASURED_GAIN, gains_of, measured_gain
from worker.ops.simulation.study import Comparison, Terms, compare, our_curve
from worker.ops.simulation.traces import read_trace
from worker.ops.simulation.workloads import SCENARIOS, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.ops.simulation.sweep import Point

HEADER = (
    *("trace", "policy", "target", "late", "late share", "wait p50 s", "p95 s", "p99 s"),
    *("pod-hours", "flaps", "redelivered", "lost", "ours/curve"),
)


@click.command()
@click.argument("traces", nargs=-1, metavar="[TRACE…]")
@click.option("--seed", default=1, show_default=True, help="Of the generated traces and of what happens to pods.")
@click.option("--target", type=click.FloatRange(min=0, min_open=True), help="Our backlog seconds for each replica.")
@click.option(
    "--bulk-target",
    default=Terms().bulk_target_s,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Backlog seconds of bulk work for each replica.",
)
@click.option(
    "--objective", type=click.FloatRange(min=0), help="Wait in seconds beyond which a person's message is late."
)
@click.option("--start", default=25.0, show_default=True, help="Seconds from the decision to a ready pod.")
@click.option("--kills", default=0.02, show_default=True, help="Kills without notice, for each pod and hour.")
@click.option("--min-replicas", default=1, show_default=True, type=click.IntRange(min=0))
@click.option("--max-replicas", default=40, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--down-window",
    default=DEFAULT_DOWN.window_s,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Stabilisation window before pods go, in seconds; stock Celery keeps the HPA's 300.",
)
@click.option("--few", default=8, show_default=True, help="Messages of a TRACE's file that a worker takes at once.")
@click.option(
    "--bench", type=click.Path(path_type=Path), help="Figures of `make bench BENCH=queue`: the gain of batching."
)
@click.option(
    "--points", default=24, show_default=True, type=click.IntRange(min=2), help="Targets tried of each policy."
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw late messages against pod-hours: .svg or .png.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line a trace.")
@reported
def simulate(traces: Sequence[str], **options: Any) -> None:  # noqa: ANN401 - click's, declared above
    """Compare autoscaling policies over a day, without a broker.

    TRACE is office, documents or nightly (all three if none is given), or a file: CSV with a header or .jsonl, with
    arrival_s, service_s and where known units and priority for each message. Our policy runs at --target, the others at
    whichever of their targets has the fewest late messages for no more pod-hours; the last column is our late messages
    over those of their whole curve at our pod-hours.
    """
    if options["plot"]:
        check(options["plot"])
    terms = _terms(options)
    scenarios = [_scenario(trace, options) for trace in traces or SCENARIOS]
    seen = []
    for scenario in scenarios:
        click.echo(f"simulating {scenario.trace.name}: {len(scenario.trace):,} messages", err=True)
        seen.append(compare(scenario, terms))
    show(lambda: View([_record(each) for each in seen], [Grid(HEADER, list(_rows(seen)))]), as_json=options["as_json"])
    if options["plot"]:
        panels = {
            each.trace: (our_curve(scenario, terms), *each.curves)
            for scenario, each in zip(scenarios, seen, strict=True)
        }
        draw(options["plot"], panels)


def _terms(options: dict[str, Any]) -> Terms:
    bounds = Scaling(
        target=1.0,
        min_replicas=options["min_replicas"],
        max_replicas=options["max_replicas"],
        down=Limits(window_s=options["down_window"]),
    )
    if bounds.min_replicas > bounds.max_replicas:
        raise click.UsageError("--min-replicas is above --max-replicas")
    return Terms(
        seed=options["seed"],
        points=options["points"],
        target_s=options["target"],
        bulk_target_s=options["bulk_target"],
        scaling=bounds,
        surroundings=Surroundings(start_s=options["start"], kills_per_hour=options["kills"]),
        gains=gains_of(measured_gain(options["bench"]) if options["bench"] else MEASURED_GAIN),
    )


def _scenario(trace: str, options: dict[str, Any]) -> Scenario:
    if trace in SCENARIOS:
        scenario = SCENARIOS[trace](options["seed"])
    elif Path(trace).is_file():
        scenario = Scenario(read_trace(Path(trace)), Surroundings().objectives_s, few=options["few"], target_s=25.0)
    else:
        raise click.UsageError(f"{trace} is neither a file nor one of {', '.join(SCENARIOS)}")
    if options["objective"] is None:
        return scenario
    return replace(scenario, objectives_s=(options["objective"],) * 2 + tuple(scenario.objectives_s[2:]))


def _record(seen: Comparison) -> dict[str, Any]:  # JSON
    return {
        "trace": seen.trace,
        "ours": asdict(seen.ours),
        "rivals": [asdict(rival) for rival in seen.rivals],
        "ratios": seen.ratios(),
        "curves": [[asdict(point) for point in curve] for curve in seen.curves],
    }


def _rows(comparisons: Sequence[Comparison]) -> Iterator[list[str]]:
    for seen in comparisons:
        yield _row(seen.trace, seen.ours, "")
        for rival, ratio in zip(seen.rivals, seen.ratios(), strict=True):
            anybody_late = seen.ours.outcome.late or rival.outcome.late
            yield _row(seen.trace, rival, f"{ratio:.2f}" if anybody_late else "")


def _row(trace: str, point: Point, ratio: str) -> list[str]:
    seen = point.outcome
    waits = [f"{wait_s:.1f}" for wait_s in (seen.wait_p50_s, seen.wait_p95_s, seen.wait_p99_s)]
    counts = map(str, (seen.flaps, seen.redeliveries, seen.lost))
    share = f"{seen.late_share:.2%}"
    hours = f"{seen.pod_hours:.1f}"
    return [trace, point.policy, f"{point.target:g}", str(seen.late), share, *waits, hours, *counts, ratio]
