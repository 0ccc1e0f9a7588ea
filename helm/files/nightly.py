"""Start the bulk run of a night: put its day where the arguments say {date}, then become `batchmill bulk classify`.

The day counts from the scheduled time, which a CronJob writes at the end of its Job's name (minutes since 1970), so a
retry after midnight resumes the same run. A Job of another name, started by hand, counts from now. It ends with code 2,
which is not tried again, if the image does not know the time zone.
"""

import os
import sys
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

NO_ZONE = "this image knows no time zone {}: set nightly.timeZone to Etc/UTC, or take an image with tzdata\n"


def scheduled(job_name: str, now: datetime) -> datetime:
    """Return when the Job was due: what its name says, if that is within two days of now."""
    tail = job_name.rpartition("-")[2]
    if not tail.isdecimal() or len(tail) > len("99999999"):
        return now
    due = datetime.fromtimestamp(int(tail) * 60, UTC)
    return due if abs(now - due) <= timedelta(days=2) else now


def zone(name: str) -> tzinfo:
    """Return a time zone; UTC needs no tables.

    Raises:
        ZoneInfoNotFoundError: neither the image nor Python knows it.
    """
    return UTC if name in {"UTC", "Etc/UTC"} else ZoneInfo(name)


def day(due: datetime, time_zone: tzinfo, days_back: int) -> str:
    """Return the date so many days before `due`, in a time zone: 2026-01-01."""
    return str(due.astimezone(time_zone).date() - timedelta(days=days_back))


def main() -> None:
    """Replace this process by the command."""
    try:
        time_zone = zone(os.environ["TIME_ZONE"])
    except ZoneInfoNotFoundError:
        sys.stderr.write(NO_ZONE.format(os.environ["TIME_ZONE"]))
        sys.exit(2)
    due = scheduled(os.environ["JOB_NAME"], datetime.now(UTC))
    date = day(due, time_zone, int(os.environ["DAYS_BACK"]))
    sys.stderr.write(f"the run of {date}\n")
    arguments = [argument.replace("{date}", date) for argument in sys.argv[1:]]
    os.execvp("batchmill", ["batchmill", "bulk", "classify", *arguments])  # noqa: S606, S607 - the image's own command


if __name__ == "__main__":
    main()
