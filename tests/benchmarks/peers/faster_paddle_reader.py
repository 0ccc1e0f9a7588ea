"""faster-paddle as its makers ship it, on one thread: a line in names a page, a line out tells what it reads.

Run by the interpreter of its own environment as `python faster_paddle_reader.py small|tiny`; it imports nothing of the
project. It takes encoded pictures only, so pages go in as BMP, which is plain pixels behind a header.
"""

import json
import resource
import struct
import sys
import time

import numpy as np
from faster_paddle import OcrEngine

HEADER_BYTES = 54


def bmp(image: np.ndarray) -> bytes:
    """Return a picture, uint8[height, width, 3] BGR, as a BMP whose rows come from the top."""
    height, width = image.shape[:2]
    rows = np.zeros((height, -(-3 * width // 4) * 4), np.uint8)
    rows[:, : 3 * width] = image.reshape(height, -1)
    size_bytes = HEADER_BYTES + rows.size
    of_file = struct.pack("<2sIHHI", b"BM", size_bytes, 0, 0, HEADER_BYTES)
    of_picture = struct.pack("<IiiHHIIiiII", 40, width, -height, 1, 24, 0, 0, 0, 0, 0, 0)
    return of_file + of_picture + rows.tobytes()


def main() -> None:
    """Answer until standard input ends."""
    engine = OcrEngine(model_size=sys.argv[1], threads=1)
    for request in sys.stdin:
        page = bmp(np.load(request.strip()))
        start_s = time.process_time()
        said = engine.ocr(page)
        cpu_s = time.process_time() - start_s
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        lines = [line["text"] for line in said["bounds"].values()]
        sys.stdout.write(json.dumps({"lines": lines, "cpu_s": cpu_s, "peak_kib": peak_kib}) + "\n")
        sys.stdout.flush()


main()
