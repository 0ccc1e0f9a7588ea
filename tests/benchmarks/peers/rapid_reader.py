"""RapidOCR as its makers ship it, on one thread: a line in names a page, a line out tells what it reads.

Run by the interpreter of RapidOCR's own environment as `python rapid_reader.py default|cls-off`; it imports nothing of
the project.
"""

import json
import resource
import sys
import time

import cv2
import numpy as np
from rapidocr import RapidOCR

ONE_THREAD = {
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
}


def main() -> None:
    """Answer until standard input ends."""
    cv2.setNumThreads(1)
    use_cls = sys.argv[1] == "default"
    engine = RapidOCR(params={"Global.log_level": "error", "Global.use_cls": use_cls, **ONE_THREAD})
    for request in sys.stdin:
        image = np.load(request.strip())
        start_s = time.process_time()
        said = engine(image)
        cpu_s = time.process_time() - start_s
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = {"lines": list(said.txts or ()), "cpu_s": cpu_s, "peak_kib": peak_kib}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


main()
