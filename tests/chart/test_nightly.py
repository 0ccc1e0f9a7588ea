"""The nightly run: its CronJob, and the day that it labels."""

from __future__ import annotations

import runpy
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tasks.commands.bulk_classify import classify
from tests.chart.rendering import CHART, Document, case, of_kind, rendered

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = CHART / "files" / "nightly.py"
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture(params=["airgapped", "irsa"])
def cron_job(request: pytest.FixtureRequest) -> Document:
    (document,) = of_kind(rendered(case(request.param)), "CronJob")
    return document


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT), run_name="nightly")


def container(cron_job: Document) -> Document:
    (found,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return found


def test_two_nights_never_run_at_once_and_none_runs_for_ever(cron_job: Document) -> None:
    spec, job = cron_job["spec"], cron_job["spec"]["jobTemplate"]["spec"]

    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["timeZone"] in {"Europe/Berlin", "Etc/UTC"}
    assert spec["startingDeadlineSeconds"] >= 10  # the controller looks every ten seconds
    assert job["activeDeadlineSeconds"] == 21600
    assert job["backoffLimit"] >= 1
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def test_wrong_usage_is_not_tried_again(cron_job: Document) -> None:
    failing, ignoring = cron_job["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]

    assert failing["action"] == "FailJob"
    assert failing["onExitCodes"] == {"containerName": "bulk", "operator": "In", "values": [2]}
    assert ignoring["action"] == "Ignore"


def test_the_command_is_one_that_exists(cron_job: Document) -> None:
    arguments = [argument.replace("{date}", "2026-03-01") for argument in container(cron_job)["args"]]

    context = classify.make_context("classify", arguments)

    assert context.params["watch"] is True
    assert context.params["output"] == "s3://lake/labels/2026-03-01"
    assert context.params["text"] or (context.params["subject"] and context.params["body"])
    assert context.params["timeout_s"] == 1800


def test_the_script_in_the_pod_is_the_one_that_is_tested(cron_job: Document) -> None:
    python, flag, text = container(cron_job)["command"]

    assert (python, flag) == ("python", "-c")
    assert text.strip() == SCRIPT.read_text().strip()


def test_the_day_is_that_of_the_zone_before_the_scheduled_one(script: dict[str, Any]) -> None:
    half_past_midnight_in_berlin = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
    berlin, utc = script["zone"]("Europe/Berlin"), script["zone"]("Etc/UTC")

    assert script["day"](half_past_midnight_in_berlin, berlin, 1) == "2026-03-01"
    assert script["day"](half_past_midnight_in_berlin, utc, 1) == "2026-02-28"
    assert script["day"](half_past_midnight_in_berlin, utc, 0) == "2026-03-01"


@pytest.mark.parametrize(
    ("job_name", "due"),
    [
        (f"prod-nightly-{int(NOON.timestamp()) // 60 - 600}", datetime(2026, 3, 2, 2, tzinfo=UTC)),
        (f"prod-nightly-{int(NOON.timestamp()) // 60 - 60 * 24 * 30}", NOON),
        ("prod-nightly-tried", NOON),
        ("prod-nightly-99999999999999999999", NOON),
        ("", NOON),
    ],
    ids=["a retry ten hours later", "a number of long ago", "by hand", "no time", "no name"],
)
def test_a_retry_after_midnight_stays_with_its_night(script: dict[str, Any], job_name: str, due: datetime) -> None:
    assert script["scheduled"](job_name, NOON) == due


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """What the script finds in its pod, with a command that prints what it was called with."""
    command = tmp_path / "batchmill"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    minutes = int(datetime.now(UTC).timestamp()) // 60
    return {"PATH": str(tmp_path), "JOB_NAME": f"nightly-{minutes}", "TIME_ZONE": "Etc/UTC", "DAYS_BACK": "1"}


def run_script(variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT.read_text(), "--output", "s3://lake/{date}"]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def test_the_script_has_what_it_reads(cron_job: Document, variables: dict[str, str]) -> None:
    assert variables.keys() - {"PATH"} <= {variable["name"] for variable in container(cron_job)["env"]}


@pytest.mark.parametrize("time_zone", ["Etc/UTC", "Europe/Berlin"])
def test_the_script_becomes_the_command(variables: dict[str, str], time_zone: str) -> None:
    done = run_script(variables | {"TIME_ZONE": time_zone})

    *verb, flag, output = done.stdout.splitlines()
    assert verb == ["bulk", "classify"]
    assert flag == "--output"
    assert datetime.strptime(output, "s3://lake/%Y-%m-%d").replace(tzinfo=UTC) < datetime.now(UTC)


def test_a_time_zone_that_the_image_does_not_know_is_not_tried_again(variables: dict[str, str]) -> None:
    done = run_script(variables | {"TIME_ZONE": "Europe/Atlantis"})

    assert done.returncode == 2
    assert "nightly.timeZone" in done.stderr
    assert not done.stdout


def test_an_image_without_time_zones_knows_utc(variables: dict[str, str]) -> None:
    assert run_script(variables | {"PYTHONTZPATH": "", "PYTHONPATH": ""}).returncode == 0
