"""The process that decodes: `python -m tasks.ocr.decoding LIMITS`, started and watched by `decoder`.

Why it exists: a library that decodes cannot be stopped, nor kept from asking for memory, from within its process. So
this one holds nothing worth stealing, writes no file, may have so much memory and no more, and is ended by the kernel
in the middle of whatever it does when a request has taken its CPU seconds. It ends with its standard input. It knows
no queue and no log; what its libraries print goes nowhere.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from tasks.ocr.documents import open_document
from tasks.ocr.frames import Ask, read_request, write_answer
from tasks.ocr.limits import DocumentLimits
from worker.errors import ItemFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO

    from tasks.ocr.pages import Document, Pixels

# They reach all processes of a terminal or a service; this one ends with the worker that asks it.
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Serve requests on the standard streams until the other side closes them."""
    limits = DocumentLimits(**json.loads(sys.argv[1]))
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _confine(limits)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    write_answer(answers, {"ready": True})
    _serve(sys.stdin.buffer, answers, limits)


def _confine(limits: DocumentLimits) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":  # elsewhere it counts something else
        resource.setrlimit(resource.RLIMIT_DATA, (limits.process_bytes, limits.process_bytes))


def _serve(requests: IO[bytes], answers: IO[bytes], limits: DocumentLimits) -> None:
    document: Document | None = None
    facts: Mapping[str, object]
    while request := read_request(requests):
        ask, content = request
        pixels: Pixels | None = None
        signal.setitimer(signal.ITIMER_PROF, limits.open_cpu_s if ask is Ask.OPEN else limits.decode_cpu_s)
        try:
            if ask is Ask.OPEN:
                if document is not None:
                    document.close()
                document = None
                document = open_document(content, limits)
                facts = {"pages": document.pages}
            else:
                assert document is not None  # noqa: S101 - the other side opens before it asks for pages
                page = document.page(int(content))
                facts, pixels = {"shape": page.image.shape, "source": asdict(page.source)}, page.image
        except ItemFailed as failure:
            facts = {"failed": failure.as_dict()}
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_answer(answers, facts, pixels)


if __name__ == "__main__":
    main()
