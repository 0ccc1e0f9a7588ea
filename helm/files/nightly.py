"""Start the bulk run of a night: put its day where the arguments say {date}, then become `batchmill bulk classify`.

The day counts from the scheduled time, which a CronJob writes at the end of its Job's name (minutes since 1970), so a
retry after midnight resumes the same run. A Job of another name, started by hand, counts from now.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo


def scheduled(job_name: str, now: datetime) -> datetime:
    """Return when the Job was due: what its name says, if that is within two days of now."""
    tail = job_name.rpartition("-")[2]
    if not tail.isdecimal():
        return now
    due = datetime.fromtimestamp(int(tail) * 60, UTC) if len(tail) <= len("99999999") else now
    return due if abs(now - due) <= timedelta(days=2) else now


def day(due: datetime, time_zone: str, days_back: int) -> str:
    """Return the date so many days before `due`, in a time zone: 2026-01-01."""
    return str(due.astimezone(ZoneInfo(time_zone)).date() - timedelta(days=days_back))


if __name__ == "__main__":
    due = scheduled(os.environ["JOB_NAME"], datetime.now(UTC))
    date = day(due, os.environ["TIME_ZONE"], int(os.environ["DAYS_BACK"]))
    arguments = [argument.replace("{date}", date) for argument in sys.argv[1:]]
    sys.stderr.write(f"the run of {date}\n")
    os.execvp("batchmill", ["batchmill", "bulk", "classify", *arguments])  # noqa: S606, S607 - the image's own command, without a shell
