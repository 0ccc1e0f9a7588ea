"""Decoding in a process of its own: the same pages, and what no document can do to the one that asks."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.errors import ErrorCode
from tasks.ocr.decoder import Decoder
from tasks.ocr.documents import open_document
from tasks.ocr.limits import MIB, DocumentLimits
from tasks.ocr.stages import FETCHERS
from tests import pdf_files
from tests.documents import DOCUMENTS, REFUSED
from worker.errors import ConfigError, Draining, ItemFailed
from worker.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = DocumentLimits()
QUICK = DocumentLimits(decode_cpu_s=1.0, open_cpu_s=0.5)


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    with Decoder(LIMITS) as started:
        yield started


@pytest.fixture
def quick() -> Iterator[Decoder]:
    """A decoder that gives each page a second."""
    with Decoder(QUICK) as started:
        yield started


def failure(decoder: Decoder, data: bytes) -> ErrorCode:
    with pytest.raises(ItemFailed) as failed:
        decoder.open(data).page(0)
    return failed.value.code


@pytest.mark.parametrize("name", ["png", "jpeg-exif-6", "tiff-3-pages", "tiff-fax-204x98", "pdf-2-pages", "webp"])
def test_pages_are_those_of_the_document(decoder: Decoder, name: str) -> None:
    data = DOCUMENTS[name]()
    direct, guarded = open_document(data, LIMITS), decoder.open(data)

    assert guarded.pages == direct.pages
    for index in range(direct.pages):
        expected, page = direct.page(index), guarded.page(index)
        assert np.array_equal(page.image, expected.image)
        assert (page.index, page.source, page.scale) == (index, expected.source, expected.scale)
        assert page.image.flags.c_contiguous
        assert page.image.flags.writeable
    direct.close()
    guarded.close()


@pytest.mark.parametrize("name", ["empty", "html-as-png", "png-cut", "png-of-3600-megapixels", "pdf-encrypted"])
def test_errors_are_those_of_the_document(decoder: Decoder, name: str) -> None:
    make, code = REFUSED[name]
    assert failure(decoder, make()) is code


def test_a_page_that_is_not_there_is_no_such_page(decoder: Decoder) -> None:
    with pytest.raises(ItemFailed) as failed:
        decoder.open(DOCUMENTS["png"]()).page(1)
    assert failed.value.code is ErrorCode.NO_SUCH_PAGE


def test_documents_can_be_read_in_turns(decoder: Decoder) -> None:
    first, second = decoder.open(DOCUMENTS["tiff-3-pages"]()), decoder.open(DOCUMENTS["pdf-2-pages"]())
    shapes = [document.page(1).image.shape for document in (first, second, first, second)]
    assert shapes == [(160, 640, 3)] * 4


def test_threads_take_turns(decoder: Decoder) -> None:
    found: list[bool] = []

    def read(name: str) -> None:
        document = decoder.open(DOCUMENTS[name]())
        found.extend(document.page(index).image.shape == (160, 640, 3) for index in range(document.pages))

    threads = [threading.Thread(target=read, args=(name,)) for name in ("tiff-3-pages", "pdf-2-pages", "png") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 12


def test_forms_that_draw_each_other_without_end_are_ended(quick: Decoder) -> None:
    bomb = pdf_files.nested_forms(levels=12, times=4)
    assert failure(quick, bomb) is ErrorCode.DECODE_TIMEOUT
    assert quick.open(DOCUMENTS["png"]()).page(0).image.shape == (160, 640, 3)


def test_a_document_that_is_never_open_is_ended_soon(quick: Decoder) -> None:
    with pytest.raises(ItemFailed, match="not opened within") as failed:
        quick.open(pdf_files.endless_page_tree(levels=60))
    assert failed.value.code is ErrorCode.DECODE_TIMEOUT
    assert quick.open(DOCUMENTS["png"]()).page(0).image.shape == (160, 640, 3)


def test_documents_that_are_opened_in_turn_cannot_make_each_other_late() -> None:
    batch_s: float = Settings.model_fields["batch_timeout_s"].default
    assert FETCHERS * DocumentLimits().open_cpu_s <= batch_s / 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to its private memory")
def test_forms_that_take_all_memory_are_ended() -> None:
    with Decoder(DocumentLimits(process_bytes=300 * MIB)) as small:
        assert failure(small, pdf_files.nested_forms(levels=9, times=10)) is ErrorCode.DAMAGED_DOCUMENT
        assert small.open(DOCUMENTS["png"]()).page(0).image.shape == (160, 640, 3)


def test_a_page_that_ends_the_process_fails_alone(quick: Decoder) -> None:
    document = quick.open(pdf_files.nested_forms(levels=12, times=4, good_pages=1))
    with pytest.raises(ItemFailed):
        document.page(0)
    assert document.page(1).image.any()


def child_of(decoder: Decoder) -> int:
    pid = decoder.pid
    assert pid is not None
    return pid


def test_a_child_that_was_killed_for_memory_is_told(quick: Decoder) -> None:
    document = quick.open(pdf_files.nested_forms(levels=12, times=4))
    killer = threading.Timer(0.3, os.kill, (child_of(quick), signal.SIGKILL))
    killer.start()
    with pytest.raises(ItemFailed) as failed:
        document.page(0)
    killer.join()
    assert failed.value.code is ErrorCode.OUT_OF_MEMORY


def test_a_child_that_died_idle_is_replaced(quick: Decoder) -> None:
    document = quick.open(DOCUMENTS["tiff-3-pages"]())
    os.kill(child_of(quick), signal.SIGKILL)
    os.waitid(os.P_PID, child_of(quick), os.WEXITED | os.WNOWAIT)
    assert document.page(2).image.shape == (160, 640, 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_for_the_whole_service_does_not_end_the_child(quick: Decoder, number: signal.Signals) -> None:
    document = quick.open(DOCUMENTS["png"]())
    child = child_of(quick)
    os.kill(child, number)
    assert document.page(0).image.shape == (160, 640, 3)
    assert child_of(quick) == child


def test_closing_ends_the_child_for_good(quick: Decoder) -> None:
    document = quick.open(DOCUMENTS["png"]())
    child = child_of(quick)
    quick.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert quick.pid is None
    with pytest.raises(Draining):
        document.page(0)
    with pytest.raises(Draining):
        quick.open(DOCUMENTS["png"]())


def test_closing_does_not_wait_for_a_page_and_blames_no_document() -> None:
    patient = Decoder(DocumentLimits(decode_cpu_s=1000))
    document = patient.open(pdf_files.nested_forms(levels=14, times=4))
    closer = threading.Timer(0.3, patient.close)
    closer.start()
    with pytest.raises(Draining):
        document.page(0)
    closer.join()


@pytest.mark.parametrize("name", ["tiff-with-a-hole", "pdf-of-noise", "webp-of-a-larger-canvas"])
def test_what_libraries_print_about_a_document_goes_nowhere(
    decoder: Decoder, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make, code = REFUSED[name]
    assert failure(decoder, make()) is code
    assert capfd.readouterr() == ("", "")


def test_a_child_that_cannot_start_is_an_error_of_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ConfigError, match="extra `ocr`"), Decoder(LIMITS) as broken:
        broken.open(DOCUMENTS["png"]())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows a process's environment")
def test_secrets_of_the_environment_do_not_reach_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    with Decoder(LIMITS) as started:
        started.open(DOCUMENTS["png"]())
        environment = Path(f"/proc/{child_of(started)}/environ").read_bytes()
    assert environment
    assert b"hunter2" not in environment
