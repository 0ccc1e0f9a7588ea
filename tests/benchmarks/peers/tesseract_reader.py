"""Tesseract as its command line has it, on one thread: a line in names a page, a line out tells what it reads.

Run as `python tesseract_reader.py LANGUAGES`. Each page is a process of its own, as that command is used: that it loads
its networks each time is in its CPU time. Pages go in as plain pixels, so that it decodes nothing.
"""

import json
import os
import resource
import subprocess
import sys

import numpy as np


def cpu_s() -> float:
    """Return the CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Answer until standard input ends."""
    command = ["tesseract", "stdin", "stdout", "-l", sys.argv[1]]
    for request in sys.stdin:
        image = np.load(request.strip())
        height, width = image.shape[:2]
        pixels = b"P6 %d %d 255\n" % (width, height) + image[..., ::-1].tobytes()
        before_s = cpu_s()
        ended = subprocess.run(
            command, input=pixels, capture_output=True, check=True, env=os.environ | {"OMP_THREAD_LIMIT": "1"}
        )
        used_s = cpu_s() - before_s
        lines = [line for line in ended.stdout.decode().splitlines() if line.strip()]
        peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        sys.stdout.write(json.dumps({"lines": lines, "cpu_s": used_s, "peak_kib": peak_kib}) + "\n")
        sys.stdout.flush()


main()
