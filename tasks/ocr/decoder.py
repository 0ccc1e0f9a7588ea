"""Decoding in a process of its own, so that no document can take the worker's time, memory or life.

Why it exists: the limits that `documents` sets by a file's headers hold for honest headers and bounded formats. A PDF
of a kilobyte whose forms draw each other takes PDFium minutes and gigabytes, and a library's bug may end the process.
Here both hit a child process, which the kernel ends; the page at fault gets its error, and the next page a new
process. It does not know formats, and it reads no source.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Self

from schemas.errors import ErrorCode
from tasks.ocr.frames import Ask, read_answer, write_request
from tasks.ocr.limits import check_bytes
from tasks.ocr.pages import Page, Source, Unit, check_index
from worker.errors import BatchmillError, ConfigError, Draining, ItemFailed

if TYPE_CHECKING:
    from types import TracebackType
    from typing import IO

    from tasks.ocr.limits import DocumentLimits
    from tasks.ocr.pages import Pixels

_ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "TZ")
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Decoder:
    """Opens documents in a child process, which is started when it is needed and again when it has ended.

    Threads may share it and then take turns; as many decoders as there are threads decode side by side.

    Args:
        limits: for each document, page, and the process.
    """

    def __init__(self, limits: DocumentLimits) -> None:
        self._limits = limits
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._held: weakref.ref[GuardedDocument] | None = None  # the child has its bytes; here nobody needs them
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The child's process id, for who measures it; None if it has not been started, or was ended."""
        process = self._process
        return None if process is None else process.pid

    def open(self, data: bytes) -> GuardedDocument:
        """Open a document; blocks while the child reads its structure, and for about a second if it has to start.

        Raises:
            ItemFailed: as `open_document`, or `decode_timeout`, `out_of_memory`.
            Draining: the decoder was closed.
            ConfigError: the child cannot be started.
        """
        check_bytes(len(data), self._limits)
        document = GuardedDocument(self, data)
        document.pages = int(self.ask(document)[0]["pages"])
        return document

    def close(self) -> None:
        """End the child at once, for good: whoever waits for a page, or asks for one later, gets `Draining`."""
        self._is_closed = True
        self.interrupt()
        with self._turn:
            self._end()

    def interrupt(self) -> None:
        """End the child at once: who waits for its answer gets an `ItemFailed`, and who asks next a new child."""
        process = self._process
        if process is not None:
            process.kill()

    def ask(self, document: GuardedDocument, index: int | None = None) -> tuple[dict[str, Any], Pixels]:
        """Return the child's answer on a document, or on one of its pages; for `GuardedDocument`."""
        with self._turn:
            if self._is_closed:
                raise Draining
            if self._process is None or self._process.poll() is not None:
                self._start()
            answer = None
            if self._held is None or self._held() is not document:
                self._held = None
                answer = self._answer(Ask.OPEN, document.data)
                self._held = weakref.ref(document)
            if index is None and answer is not None:
                return answer
            return self._answer(Ask.PAGE, str(index).encode())

    def _answer(self, ask: Ask, content: bytes) -> tuple[dict[str, Any], Pixels]:
        process = self._process
        assert process is not None  # noqa: S101 - it was started
        try:
            write_request(_pipe(process.stdin), ask, content)
            facts, pixels = read_answer(_pipe(process.stdout))
        except (OSError, EOFError):
            raise self._buried(ask) from None
        except BaseException:  # an interrupt: the rest of the answer would be taken for the next one
            self._end()
            raise
        if failed := facts.get("failed"):
            raise ItemFailed(ErrorCode(failed["code"]), failed["message"])
        return facts, pixels

    def _start(self) -> None:
        self._end()
        command = [sys.executable, "-P", "-m", "tasks.ocr.decoding", json.dumps(asdict(self._limits))]
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | _ONE_THREAD
        self._process = process = subprocess.Popen(  # noqa: S603 - ours
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            read_answer(_pipe(process.stdout))
        except EOFError:
            self._end()
            text = "the process that decodes documents does not start: is batchmill installed with its extra `ocr`?"
            raise ConfigError(text) from None

    def _end(self) -> None:
        process, self._process, self._held = self._process, None, None
        if process is not None:
            process.kill()
            process.communicate()

    def _buried(self, ask: Ask) -> BatchmillError:
        """Return what the end of the child means for what it was asked."""
        if self._is_closed:
            return Draining()
        assert self._process  # noqa: S101 - it was asked
        status = self._process.wait()
        self._end()
        match -status:
            case signal.SIGPROF:
                limits = self._limits
                done, limit_s = ("opened", limits.open_cpu_s) if ask is Ask.OPEN else ("decoded", limits.decode_cpu_s)
                return ItemFailed(ErrorCode.DECODE_TIMEOUT, f"it was not {done} within {limit_s:g} s of CPU time")
            case signal.SIGKILL:
                return ItemFailed(ErrorCode.OUT_OF_MEMORY, "the process that decoded it was killed for its memory")
            case _:
                return ItemFailed(
                    ErrorCode.DAMAGED_DOCUMENT, "it ended the process that decoded it: damaged, or over its memory"
                )


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101 - the child was started with both
    return stream


class GuardedDocument:
    """A `Document` that a `Decoder` opened.

    Attributes:
        data: the file.
        pages: how many it has.
    """

    def __init__(self, decoder: Decoder, data: bytes) -> None:
        self.data = data
        self.pages = 0
        self._decoder = decoder

    def page(self, index: int, decoder: Decoder | None = None) -> Page:
        """Have a page decoded; see `Document`. Waits while another thread uses the decoder.

        Args:
            index: from 0.
            decoder: another one than that which opened it.

        Raises:
            ItemFailed: as `open_document` and the documents do, or `decode_timeout`, `out_of_memory`.
            Draining: the decoder was closed.
            ConfigError: the child had ended and cannot be started again.
        """
        check_index(index, self.pages)
        facts, pixels = (decoder or self._decoder).ask(self, index)
        source = facts["source"]
        dpi = source["dpi"] and (source["dpi"][0], source["dpi"][1])
        return Page(
            index,
            pixels.reshape(facts["shape"]),
            Source(source["width"], source["height"], Unit(source["unit"]), dpi),
        )

    def close(self) -> None:
        """Let go of the bytes; no page is to be had after that."""
        self.data = b""
