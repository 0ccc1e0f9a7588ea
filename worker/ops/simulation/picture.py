"""The picture of a sweep: the share of late messages against pod-hours, a curve for each policy.

Drawn by matplotlib, which only the extra `simulate` installs. The same points give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - of an annotated constant
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from worker.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from worker.ops.simulation.sweep import Point

FORMATS: Final = (".svg", ".png")
STYLE: Final[Mapping[str, object]] = {"svg.hashsalt": "batchmill", "svg.fonttype": "none", "font.size": 9.0}
MARKERS: Final = "osD^v"


def check(path: Path) -> None:
    """Raise `ConfigError` unless `path` can become a picture here: for before the long work."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"{path}: a picture ends in {' or '.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        raise ConfigError("a picture needs matplotlib: pip install 'batchmill[simulate]'")


def draw(path: Path, panels: Mapping[str, Sequence[Sequence[Point]]]) -> None:
    """Write the picture, in the format of its file name.

    Args:
        path: ends in one of `FORMATS`.
        panels: by title, the points of each policy.

    Raises:
        ConfigError: matplotlib is missing, the ending is unknown, or the file cannot be written.
    """
    check(path)
    from matplotlib import rc_context  # noqa: PLC0415 - optional, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415 - the same

    with rc_context(dict(STYLE)):  # type: ignore[arg-type] # its stub lists every key
        figure = Figure(figsize=(4.0 * len(panels), 3.6), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False)
        for axes, (title, curves) in zip(grid[0], panels.items(), strict=True):
            _fill(axes, title, curves)
        grid[0][0].set_ylabel("share of messages that are late")
        grid[0][0].legend(frameon=False)
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        try:
            figure.savefig(path, metadata=metadata, dpi=120)
        except OSError as error:
            raise ConfigError(f"{path}: {error}") from error


def _fill(axes: Axes, title: str, curves: Sequence[Sequence[Point]]) -> None:
    for marker, points in zip(MARKERS, curves, strict=False):
        ordered = sorted(points, key=lambda point: point.outcome.pod_hours)
        pod_hours = [point.outcome.pod_hours for point in ordered]
        late = [max(point.outcome.late, 0.5) / point.outcome.messages for point in ordered]  # a log axis has no 0
        axes.plot(pod_hours, late, marker=marker, markersize=3, linewidth=0.8, label=ordered[0].policy)
    axes.set(title=title, xlabel="pod-hours", yscale="log")
    axes.grid(visible=True, linewidth=0.3)
