"""A page is turned upright where the network is sure, and only there."""

import numpy as np
import pytest

from tasks.ocr.orientation import Rotation, network_input, rotation, upright


@pytest.mark.parametrize("shape", [(1, 1, 3), (40, 4005, 3), (1000, 700, 3), (224, 224, 3)])
def test_any_page_gives_one_square(shape: tuple[int, int, int]) -> None:
    values = network_input(np.full(shape, 255, np.uint8))
    assert (values.shape, values.dtype) == ((1, 3, 224, 224), np.float32)
    assert values[0, :, 100, 100] == pytest.approx([(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225])


@pytest.mark.parametrize(
    ("probabilities", "turned"),
    [
        pytest.param([[0.9, 0.05, 0.03, 0.02]], 0, id="upright"),
        pytest.param([[0.1, 0.0, 0.9, 0.0]], 180, id="upside down"),
        pytest.param([[0.0, 0.0, 0.1, 0.9]], 270, id="on its side"),
        pytest.param([[0.45, 0.0, 0.55, 0.0]], 0, id="not sure"),
    ],
)
def test_a_page_is_turned_where_the_network_is_sure(probabilities: list[list[float]], turned: int) -> None:
    assert rotation(np.array(probabilities, np.float32)) == turned


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_turning_back_undoes_a_clockwise_turn(turned: Rotation) -> None:
    page = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    scanned = np.rot90(page, -turned // 90)
    assert np.array_equal(upright(scanned, turned), page)
