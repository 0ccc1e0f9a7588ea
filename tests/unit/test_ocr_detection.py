"""Pages are cut and resized so that a network can read them, and its maps become boxes around lines."""

from itertools import pairwise

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.ocr.detection import Tile, boxes, merged, network_input, plan, resized
from tasks.ocr.profiles import SideLimits

LIMITS = SideLimits(least=736, most=1280)


@pytest.mark.parametrize(
    ("height", "width", "resized_to"),
    [
        pytest.param(1000, 800, (992, 800), id="in the limits: rounded to 32"),
        pytest.param(368, 368, (736, 736), id="small: enlarged to the least side"),
        pytest.param(3508, 2480, (1280, 896), id="a 300-dpi page: shrunk to the most"),
        pytest.param(400, 1200, (416, 1280), id="small but wide: the most side wins"),
        pytest.param(1, 1, (736, 736), id="one pixel"),
        pytest.param(1280, 320, (1280, 320), id="four times as high: still one tile"),
    ],
)
def test_a_page_of_ordinary_shape_is_one_tile(height: int, width: int, resized_to: tuple[int, int]) -> None:
    planned = plan(height, width, LIMITS)
    assert (planned.height, planned.width) == resized_to
    assert planned.tiles == (Tile(0, 0, *resized_to),)


def test_a_banner_is_enlarged_and_cut_into_overlapping_tiles() -> None:
    planned = plan(40, 4005, LIMITS)
    assert (planned.height, planned.width) == (96, 9600)
    assert planned.tiles[0] == Tile(0, 0, 96, 1280)
    assert all(before.left + before.width > after.left for before, after in pairwise(planned.tiles))
    assert planned.tiles[-1].left + planned.tiles[-1].width == 9600


def test_a_long_screenshot_keeps_its_scale() -> None:
    planned = plan(12_000, 1_080, LIMITS)
    assert planned.width == 1_088
    assert {tile.height for tile in planned.tiles} == {1280}


@given(st.integers(1, 70_000), st.integers(1, 70_000), st.sampled_from([1280, 2016]))
def test_tiles_cover_the_page_and_stay_small(height: int, width: int, most: int) -> None:
    planned = plan(height, width, SideLimits(736, most))
    covered = np.zeros((planned.height // 32, planned.width // 32), bool)
    for tile in planned.tiles:
        assert all(side % 32 == 0 for side in tile)
        assert 32 <= tile.height <= most
        assert 32 <= tile.width <= most
        covered[tile.top // 32 : (tile.top + tile.height) // 32, tile.left // 32 : (tile.left + tile.width) // 32] = (
            True
        )
    assert covered.all()
    assert len(planned.tiles) <= 13


def test_the_network_reads_minus_one_to_one_in_the_order_of_the_channels() -> None:
    page = np.zeros((32, 64, 3), np.uint8)
    page[:, :, 0] = 255
    page[:, :, 1] = 51
    values = network_input(page, Tile(0, 32, 32, 32))
    assert (values.shape, values.dtype) == ((1, 3, 32, 32), np.float32)
    assert values[0, :, 5, 5] == pytest.approx([1.0, -0.6, -1.0])


def test_a_page_is_resized_as_planned_in_each_direction() -> None:
    planned = plan(1000, 815, LIMITS)
    assert resized(np.zeros((1000, 815, 3), np.uint8), planned).shape == (992, 800, 3)


def test_where_tiles_overlap_the_surer_one_counts() -> None:
    planned = plan(40, 4005, LIMITS)
    maps = [np.full((96, 1280), 0.1 * (number % 2 + 1), np.float32) for number in range(len(planned.tiles))]
    whole = merged(planned, maps)
    assert whole.shape == (96, 9600)
    assert whole[0, [0, 1279, 1300, 9599]] == pytest.approx([0.1, 0.2, 0.2, 0.1 * ((len(maps) - 1) % 2 + 1)])


def test_a_box_grows_by_what_the_network_shrank_it() -> None:
    likely = np.zeros((128, 256), np.float32)
    likely[40:60, 50:150] = 0.9
    (box,) = boxes(likely, height=256, width=512)
    grown = 100 * 20 * 1.6 / (2 * (100 + 20))
    left, top = box.corners[0] / 2
    right, bottom = box.corners[2] / 2
    assert (left, top, right, bottom) == pytest.approx((50 - grown, 40 - grown, 150 + grown, 60 + grown), abs=1.5)
    assert box.score == pytest.approx(0.9, abs=0.1)


@pytest.mark.parametrize(
    ("rows", "columns", "value"),
    [
        pytest.param(slice(40, 60), slice(50, 150), 0.4, id="likely enough for the map, not for a box"),
        pytest.param(slice(40, 60), slice(50, 150), 0.2, id="unlikely"),
        pytest.param(slice(40, 41), slice(50, 52), 0.9, id="a speck"),
    ],
)
def test_what_is_no_line_has_no_box(rows: slice, columns: slice, value: float) -> None:
    likely = np.zeros((128, 256), np.float32)
    likely[rows, columns] = value
    assert boxes(likely, 128, 256) == []


def test_an_empty_map_has_no_boxes() -> None:
    assert boxes(np.zeros((32, 32), np.float32), 1, 1) == []


def test_a_slanted_line_has_a_slanted_box_in_order() -> None:
    mask = np.zeros((256, 256), np.uint8)
    slanted = cv2.boxPoints(((128, 128), (160, 24), 10))
    cv2.fillPoly(mask, [slanted.astype(np.int32)], 1)
    (box,) = boxes(mask.astype(np.float32), 256, 256)
    top_left, top_right, bottom_right, bottom_left = box.corners
    assert np.degrees(np.arctan2(*(top_right - top_left)[::-1])) == pytest.approx(10, abs=1.5)
    assert top_left[1] < bottom_left[1]
    assert top_right[1] < bottom_right[1]
    assert top_left[0] < top_right[0]


def test_a_box_ends_at_the_page() -> None:
    likely = np.ones((64, 64), np.float32)
    (box,) = boxes(likely, 100, 100)
    assert box.corners.min() == 0
    assert box.corners.max() == 99
