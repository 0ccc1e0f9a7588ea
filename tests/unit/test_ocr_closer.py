"""A page with hardly any text is looked at again where its ink is, and every line that is seen counts once."""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.ocr.closer import Part, added, is_empty, parts
from tasks.ocr.detection import Box, looked_at
from tasks.ocr.profiles import PROFILES, SideLimits

LIMITS = PROFILES["fast"].limits
HEIGHT, WIDTH = 3_508, 2_480

Image = NDArray[np.uint8]


def paper(height: int = HEIGHT, width: int = WIDTH, grey: int = 255) -> Image:
    return np.full((height, width, 3), grey, np.uint8)


def written(page: Image, text: str, left: int, base: int, ink: int = 0) -> Image:
    cv2.putText(page, text, (left, base), (ink, ink, ink), cv2.FontFace("sans"), 34, 400)
    return page


def grain() -> Image:
    """Paper as a scanner sees it."""
    return np.random.default_rng(5).normal(235, 9, (HEIGHT, WIDTH, 3)).clip(0, 255).astype(np.uint8)


def box(left: float, top: float, right: float, bottom: float) -> Box:
    return Box(np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float32), 0.9)


def holds(part: Part, left: int, top: int, right: int, bottom: int) -> bool:
    """Whether all of this is both looked at and looked for."""
    inner = part.ink
    return (
        part.left <= inner[0] <= left
        and part.top <= inner[1] <= top
        and right <= inner[2] <= part.right
        and bottom <= inner[3] <= part.bottom
    )


@pytest.mark.parametrize("page", [paper(), paper(grey=0), paper(1, 1)])
def test_a_page_of_one_grey_is_empty(page: Image) -> None:
    assert is_empty(page)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(written(paper(), "7", 1_200, 3_400), id="one digit"),
        pytest.param(written(paper(grey=230), "7", 1_200, 3_400, ink=200), id="one pale digit"),
        pytest.param(written(paper(), "7", 1_200, 3_400)[::2, ::2], id="a view with gaps"),
        pytest.param(grain(), id="paper's grain"),
    ],
)
def test_a_page_on_which_anything_stands_is_not_empty(page: Image) -> None:
    assert not is_empty(page)


@pytest.mark.parametrize(
    ("left", "base"),
    [pytest.param(300, 400, id="inside"), pytest.param(5, 40, id="in a corner"), pytest.param(2_000, 3_490, id="low")],
)
def test_a_line_alone_has_a_part_around_it_that_the_network_need_not_enlarge(left: int, base: int) -> None:
    (part,) = parts(written(paper(), "Seite 2 von 2", left, base), [], LIMITS)
    assert holds(part, left, base - 20, left + 200, base)
    seen = part.of(paper())
    assert min(seen.shape[:2]) >= LIMITS.least
    assert seen.shape[0] * seen.shape[1] < HEIGHT * WIDTH / 4


def test_what_stands_apart_is_looked_at_apart_and_what_stands_together_together() -> None:
    page = written(paper(), "Kurze Notiz", 300, 400)
    written(page, "vom 3. März", 300, 450)
    written(page, "Seite 12 von 14", 1_900, 3_300)
    found = parts(page, [], LIMITS)
    assert len(found) == 2
    assert any(holds(part, 300, 380, 500, 450) for part in found)
    assert any(holds(part, 1_900, 3_280, 2_100, 3_300) for part in found)


def test_a_page_with_text_enough_is_left_alone() -> None:
    page = written(paper(), "Seite 2 von 2", 300, 400)
    line = box(200, 1_000, 2_200, 1_045)
    assert parts(page, [line], LIMITS) == []
    assert len(parts(page, [box(200, 1_000, 1_000, 1_045)], LIMITS)) == 1


def test_a_page_that_is_nearly_long_has_as_many_parts_as_any() -> None:
    page = paper(8_000, 2_040)
    for number in range(6):
        written(page, "Seite 2 von 2", 300, 400 + 1_200 * number)
    assert len(parts(page, [], LIMITS)) == 6


def test_a_line_that_is_known_is_not_looked_for_again() -> None:
    page = written(paper(), "Seite 2 von 2", 300, 400)
    assert parts(page, [box(280, 355, 560, 420)], LIMITS) == []


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(paper(), id="nothing"),
        pytest.param(grain(), id="paper's grain"),
        pytest.param(cv2.rectangle(paper(), (700, 900), (708, 908), (0, 0, 0), -1), id="a speck"),
        pytest.param(cv2.rectangle(paper(), (50, 50), (2_400, 3_400), (0, 0, 0), 4), id="a frame around the page"),
    ],
)
def test_nothing_is_looked_for_where_no_line_can_be(page: Image) -> None:
    assert parts(page, [], LIMITS) == []


def test_the_largest_blots_go_first_and_are_not_too_many() -> None:
    page = paper()
    for number in range(20):
        written(page, "Wort" * (1 + number // 7), 200 + 1_100 * (number % 2), 200 + 320 * (number // 2))
    found = parts(page, [], LIMITS)
    assert len(found) == 6
    assert all(part.ink[3] > 200 + 320 * 7 for part in found), "the long words are those below"


@pytest.mark.parametrize("limits", [PROFILES["accurate"].limits, PROFILES["fast"].limits], ids=["accurate", "fast"])
def test_all_parts_together_cost_no_more_than_a_few_looks_at_the_page(limits: SideLimits) -> None:
    """Such as long slanting lines of a drawing: each part is cut into tiles at a scale that the page is not seen at."""
    height, width = 9_000, 4_440
    page = paper(height, width)
    for left in range(60, 3_000, 500):
        cv2.line(page, (left, 60), (left + 1_750, 8_900), (0, 0, 0), 10)
    written(page, "Seite 2 von 2", 3_400, 1_000)
    found = parts(page, [], limits)
    cost = sum(looked_at(part.bottom - part.top, part.right - part.left, limits) for part in found)
    assert 0 < cost <= 4 * looked_at(height, width, limits)
    assert any(holds(part, 3_400, 980, 3_600, 1_000) for part in found), "what is small is looked at all the same"


@pytest.mark.parametrize(("height", "width"), [(1, 1), (8, 8), (300, 40), (40, 4_005), (736, 736)])
def test_a_small_page_has_no_part_larger_than_itself(height: int, width: int) -> None:
    page = np.random.default_rng(height).integers(0, 256, (height, width, 3)).astype(np.uint8)
    for part in parts(page, [], LIMITS):
        assert 0 <= part.left < part.right <= width
        assert 0 <= part.top < part.bottom <= height


def test_lines_of_a_part_are_put_where_they_stand_on_the_page() -> None:
    (line,) = added([], [box(10, 20, 110, 40)], Part(700, 900, 1_500, 1_700, (700, 900, 900, 1_000)), (HEIGHT, WIDTH))
    assert line.corners.tolist() == [[710, 920], [810, 920], [810, 940], [710, 940]]


def test_each_line_counts_once() -> None:
    known = box(710, 920, 810, 940)
    part = Part(700, 900, 1_500, 1_700, (700, 900, 900, 1_000))
    again, of_another_part = box(12, 21, 108, 39), box(300, 400, 400, 420)
    assert added([known], [again, of_another_part], part, (HEIGHT, WIDTH)) == [known]


@pytest.mark.parametrize(
    ("left", "top", "right", "bottom"),
    [
        pytest.param(0, 200, 80, 230, id="left"),
        pytest.param(300, 0, 600, 20, id="top"),
        pytest.param(720, 200, 799, 230, id="right"),
        pytest.param(300, 780, 600, 799, id="bottom"),
    ],
)
def test_a_line_that_the_edge_of_a_part_cuts_does_not_count_unless_it_is_the_edge_of_the_page(
    left: int, top: int, right: int, bottom: int
) -> None:
    cut = box(left, top, right, bottom)
    inside, page = Part(700, 900, 1_500, 1_700, (700, 900, 1_500, 1_700)), Part(0, 0, 800, 800, (0, 0, 800, 800))
    assert added([], [cut], inside, (HEIGHT, WIDTH)) == []
    assert len(added([], [cut], page, (800, 800))) == 1
