"""Lines are cut out upright, 48 pixels high, and padded by what they are, not by what lies beside them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.ocr.crops import MAX_WIDTH, Crop, crops, network_input, padded_width, parts, straightened, to_height


def corners(left: float, top: float, right: float, bottom: float) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float32)


def strip(width: int, value: int = 255) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    return np.full((48, width, 3), value, np.uint8)


def page_with_gradient() -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    return np.dstack([np.tile(np.arange(200, dtype=np.uint8), (100, 1))] * 3)


def test_a_level_box_is_cut_as_it_stands() -> None:
    cut = straightened(page_with_gradient(), corners(20, 10, 80, 40))
    assert cut.shape == (30, 60, 3)
    assert cut[15, :, 0].tolist() == pytest.approx(list(range(20, 80)), abs=1)


def test_a_line_becomes_48_pixels_high_in_proportion() -> None:
    (crop,) = crops(page_with_gradient(), corners(20, 10, 80, 40), line=3)
    assert (crop.pixels.shape, crop.line, crop.reading, crop.part) == ((48, 96, 3), 3, 0, 0)


def test_a_box_of_no_size_is_one_pixel() -> None:
    assert straightened(page_with_gradient(), corners(5, 5, 5, 5)).shape == (1, 1, 3)


def test_a_line_longer_than_opencv_warps_is_cut_out_smaller() -> None:
    page = np.full((40, 40_000, 3), 200, np.uint8)
    cut = straightened(page, corners(10, 5, 39_990, 35))
    assert cut.shape[1] == pytest.approx(16_000, rel=0.01)
    assert cut.mean() == 200


def test_a_high_box_is_read_upwards_downwards_and_as_it_stands() -> None:
    page = np.zeros((100, 100, 3), np.uint8)
    page[:50] = 255
    read = crops(page, corners(40, 10, 60, 90), line=0)
    assert [crop.reading for crop in read] == [0, 1, 2]
    assert [crop.pixels.shape[1] for crop in read] == [192, 192, 12]
    assert [crop.pixels[24, 5, 0] > 200 for crop in read[:2]] == [True, False]


@pytest.mark.parametrize(("width", "padded"), [(1, 32), (32, 32), (33, 64), (3_200, 3_200)])
def test_a_width_is_rounded_up_to_its_bucket(width: int, padded: int) -> None:
    assert padded_width(width) == padded


@given(st.integers(1, 400), st.integers(1, 400))
def test_a_strip_is_48_high_and_never_too_narrow(height: int, width: int) -> None:
    high, wide, _ = to_height(np.zeros((height, width, 3), np.uint8)).shape
    assert high == 48
    assert wide == min(max(8, -(-48 * width // height)), 12_800)


@given(st.integers(1, 9_000), st.integers(0, 9))
def test_the_parts_of_a_long_strip_are_the_strip(width: int, seed: int) -> None:
    whole = np.random.default_rng(seed).integers(0, 256, (48, width, 3), np.uint8)
    cut = parts(whole)
    assert all(0 < part.shape[1] <= MAX_WIDTH for part in cut)
    assert np.array_equal(np.concatenate(cut, axis=1), whole)


def test_a_long_line_is_cut_in_a_gap_between_words() -> None:
    line = strip(4_000)
    line[10:40, ::2] = 0
    line[:, 2_400:2_440] = 255
    assert 2_400 <= parts(line)[0].shape[1] < 2_440


def test_padding_is_grey_after_normalising() -> None:
    values = network_input([Crop(strip(40), 0, 0, 0), Crop(strip(64, 0), 1, 0, 0)])
    assert (values.shape, values.dtype) == ((2, 3, 48, 64), np.float32)
    assert (values[0, :, :, :40] == 1).all()
    assert (values[0, :, :, 40:] == 0).all()
    assert (values[1] == -1).all()
