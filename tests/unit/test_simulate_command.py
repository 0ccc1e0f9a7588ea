"""`batchmill simulate`, on traces that end in a moment."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from tasks.cli import main
from tests.services import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def day(tmp_path: Path) -> Path:
    path = tmp_path / "day.csv"
    rows = [f"{second * 3},{2 if second % 7 else 40}" for second in range(200)]
    path.write_text("\n".join(["arrival_s,service_s", *rows]) + "\n")
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, args)])


def test_a_table_has_a_line_for_each_policy(day: Path) -> None:
    result = run(day, "--points", 4)

    assert result.exit_code == 0
    assert result.stderr == "simulating day: 200 messages\n"
    header, *rows = (line.split("\t") for line in result.stdout.splitlines())
    assert header[:4] == ["trace", "policy", "target", "late"]
    assert [row[1] for row in rows] == ["backlog seconds", "list length + in flight", "list length, Celery"]
    assert {len(row) for row in rows} == {len(header)}


def test_json_holds_every_point_and_is_the_same_again(day: Path) -> None:
    first, again = (run(day, "--points", 4, "--json", "--seed", 3).stdout for _ in range(2))

    seen = json.loads(first)
    assert first == again
    assert seen["trace"] == "day"
    assert seen["ours"]["outcome"]["messages"] == 200
    assert [len(curve) for curve in seen["curves"]] == [4, 4]


def test_options_change_what_is_simulated(day: Path) -> None:
    usual, slow, strict = (
        json.loads(run(day, "--points", 2, "--json", *options).stdout)["ours"]
        for options in ((), ("--start", 300), ("--objective", 1, "--target", 10))
    )

    assert slow["outcome"]["wait_p95_s"] > usual["outcome"]["wait_p95_s"]
    assert strict["target"] == 10.0
    assert strict["outcome"]["late"] > 0


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_picture_is_the_same_bytes_again(day: Path, tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    paths = [tmp_path / f"{name}.{ending}" for name in ("one", "two")]

    for path in paths:
        assert run(day, "--points", 3, "--plot", path).exit_code == 0

    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].stat().st_size > 5000


def test_a_picture_without_matplotlib_says_what_to_install(day: Path, tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['matplotlib'] = None; from tasks.cli import main;"
        f"main(['simulate', {str(day)!r}, '--points', '2', '--plot', {str(tmp_path / 'a.svg')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 3
    assert "pip install 'batchmill[simulate]'" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        pytest.param(("weekend",), 2, "weekend is neither a file nor one of office", id="unknown trace"),
        pytest.param(("office", "--min-replicas", 9, "--max-replicas", 3), 2, "above", id="bounds"),
        pytest.param(("office", "--plot", "a.pdf"), 3, "ends in .svg or .png", id="ending"),
        pytest.param(("office", "--bench", "absent.json"), 3, "make bench", id="no figures"),
    ],
)
def test_what_cannot_be_is_refused_at_once(args: tuple[object, ...], code: int, said: str) -> None:
    result = run(*args)

    assert result.exit_code == code
    assert said in result.stderr
