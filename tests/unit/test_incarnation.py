"""Which former lives of a worker may be taken over at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from worker.incarnation import has_died, incarnation

MINE = incarnation("alpha")
PLACE = MINE.removeprefix("alpha:")
HOST, NAMESPACE, PID, RANDOM = PLACE.split("/")


def ended_pid() -> int:
    """Return the number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def test_a_name_holds_no_white_space_and_one_colon() -> None:
    name, _, place = incarnation("a b:c@%h").partition(":")

    assert name == "a_b_c@%h"
    assert not set(place) & set(": \n\t")
    assert place.split("/")[2] == str(os.getpid())


@pytest.mark.parametrize(
    ("former", "is_silent", "dead"),
    [
        (f"alpha:{HOST}/{NAMESPACE}/{ended_pid()}/0", False, True),
        (f"alpha:{HOST}/{NAMESPACE}/{PID}/0", False, True),
        (f"alpha:{HOST}/{NAMESPACE}/{os.getppid()}/0", True, False),
        (f"alpha:{HOST}/1/{PID}/0", True, True),
        (f"alpha:{HOST}/1/{PID}/0", False, False),
        (f"alpha:other/{NAMESPACE}/{ended_pid()}/0", True, False),
        (f"beta:{HOST}/{NAMESPACE}/{ended_pid()}/0", True, False),
        (MINE, True, False),
    ],
    ids=[
        "its process has ended",
        "its process number is mine now",
        "its process runs, silent or not",
        "in another container, which is silent",
        "in another container, which gives signs of life",
        "on another host",
        "of another worker",
        "this very life",
    ],
)
def test_only_what_has_surely_ended_is_taken_over(former: str, is_silent: bool, dead: bool) -> None:  # noqa: FBT001 - parameters of the test
    assert has_died(former, MINE, is_silent=is_silent) is dead
