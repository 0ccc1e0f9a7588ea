"""Runs a module with a clock that is wrong: `python -m tests.faults.shifted SECONDS MODULE ARGUMENTS…`.

What a machine's clock would do to everything, this does to `time.time`; monotonic clocks go right either way.
"""

import runpy
import sys
import time


def main() -> None:
    offset_s, module = float(sys.argv[1]), sys.argv[2]
    true_time = time.time
    if offset_s:
        time.time = lambda: true_time() + offset_s
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
