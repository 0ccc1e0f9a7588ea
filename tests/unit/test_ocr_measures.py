"""The figures of the OCR benchmark are what their names say."""

from pathlib import Path

import pytest

from tests.benchmarks.ocr_measures import (
    PROFILES,
    RAPIDOCR,
    RAPIDOCR_CLS_OFF,
    TESSERACT,
    Read,
    measures,
    recall_and_precision,
)
from tests.benchmarks.ocr_pages import BenchDocument

UPRIGHT = BenchDocument("a.png", (Path("a.npy"),), "one two two three", is_upright=True)
TURNED = BenchDocument("rot.png", (Path("rot.npy"),), "four", is_upright=False)


@pytest.mark.parametrize(
    ("said", "recall", "precision"),
    [
        (["one two two three"], 1.0, 1.0),
        (["one two", "three"], 0.75, 1.0),
        (["one one two two three"], 1.0, 0.8),
        ([], 0.0, 0.0),
    ],
)
def test_each_word_counts_as_often_as_it_is_there(said: list[str], recall: float, precision: float) -> None:
    assert recall_and_precision(said, UPRIGHT.text) == (recall, precision)


def test_speed_is_a_ratio_within_a_round_and_quality_is_over_upright_pages() -> None:
    right, wrong = Read(("one two two", "three"), 1.0), Read(("One",), 4.0)
    of = {name: {"a.png": right, "rot.png": right} for name in PROFILES}
    peers = {
        RAPIDOCR: {"a.png": wrong, "rot.png": wrong},
        RAPIDOCR_CLS_OFF: {"a.png": Read(("one two two", "thre"), 3.0), "rot.png": wrong},
    }
    figures = measures([{**of, **peers}], [UPRIGHT, TURNED], 0.5)
    assert figures["fast_vs_rapidocr"] == 4.0
    assert figures["identical_lines"] == 0.5
    assert figures["recall_delta_accurate"] == 0.25
    assert figures["recall_delta_fast"] == 1.0
    assert figures["recall_accurate_turned_too"] == 0.5
    assert figures["peak_rss_gib"] == 0.5


def test_a_peer_that_may_be_missing_is_told_where_it_was_there() -> None:
    said = {"a.png": Read(("one two two three",), 2.0)}
    names = [*PROFILES, RAPIDOCR, RAPIDOCR_CLS_OFF]
    without = measures([dict.fromkeys(names, said)], [UPRIGHT], 0.5)
    figures = measures([dict.fromkeys(names, said) | {TESSERACT: {"a.png": Read(("one",), 3.0)}}], [UPRIGHT], 0.5)

    assert {name for name in figures if TESSERACT in name} == {
        *("accurate_vs_tesseract", "fast_vs_tesseract", "cpu_s_tesseract"),
        *("recall_tesseract", "precision_tesseract", "recall_tesseract_turned_too"),
    }
    assert not any(TESSERACT in name for name in without)
    assert (figures["accurate_vs_tesseract"], figures["recall_tesseract"]) == (1.5, 0.25)
