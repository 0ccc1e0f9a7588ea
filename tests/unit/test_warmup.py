from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from schemas.errors import ErrorCode
from tasks.classify.model import TicketClassifier
from tests.tiny_models import write_tiny_model
from worker.errors import ItemFailed, ModelError
from worker.jobs import Cancellation
from worker.models.repository import load_dir
from worker.models.session import Session
from worker.models.warmup import Calibration, fit, warm_up

CALL_S = 0.002
TOKEN_S = 0.0001


class Metronome:
    """A model that takes exactly `CALL_S + rows x length x TOKEN_S` on its own clock."""

    name = "metronome"
    info: Mapping[str, str] = {}
    max_length = 100

    def __init__(self, outcome: object = 1.0, *, failing_length: int | None = None) -> None:
        self.now_s = 0.0
        self.shapes: list[tuple[int, int]] = []
        self._outcome = outcome
        self._failing_length = failing_length

    def sample(self, batch_size: int, length: int) -> list[object]:
        return [length] * batch_size

    def run(self, features: Sequence[object], cancellation: Cancellation) -> Sequence[object]:
        rows, length = len(features), int(str(features[0]))
        self.shapes.append((rows, length))
        if length == self._failing_length:
            raise ItemFailed(ErrorCode.INFERENCE_FAILED, "position table overrun")
        assert not cancellation.cancelled
        self.now_s += CALL_S + rows * length * TOKEN_S
        return [self._outcome] * rows


def warm(model: Metronome, max_batch_size: int, max_batch_tokens: int) -> Calibration:
    return warm_up(model, max_batch_size, max_batch_tokens, clock=lambda: model.now_s)


def test_the_cost_of_a_call_is_found_in_padded_tokens() -> None:
    calibration = warm(Metronome(), max_batch_size=8, max_batch_tokens=128)

    assert calibration.call_cost_tokens == pytest.approx(CALL_S / TOKEN_S)
    assert calibration.tokens_per_s == pytest.approx(1 / TOKEN_S)


def test_it_runs_the_corners_of_what_the_batcher_emits_and_nothing_beyond() -> None:
    model = Metronome()

    calibration = warm(model, max_batch_size=8, max_batch_tokens=128)

    assert {(1, 1), (1, 100), (8, 8), (4, 32)} <= set(model.shapes)
    assert all(rows <= 8 and length <= 100 for rows, length in model.shapes)
    assert all(rows * length <= 128 for rows, length in model.shapes)
    assert len(model.shapes) == calibration.runs
    assert calibration.wall_s > 0


def test_a_row_over_the_budget_is_warmed_alone() -> None:
    model = Metronome()

    warm(model, max_batch_size=8, max_batch_tokens=32)

    assert [shape for shape in model.shapes if shape[0] * shape[1] > 32] == [(1, 100)]


def test_a_budget_of_one_token_still_calibrates() -> None:
    calibration = warm(Metronome(), max_batch_size=1, max_batch_tokens=1)

    assert calibration.tokens_per_s > 0


@pytest.mark.parametrize(
    ("tokens", "durations_s", "call_cost_tokens"),
    [
        pytest.param([8, 16, 64], [0.024, 0.032, 0.080], 16.0, id="a line"),
        pytest.param([8, 16, 64], [0.008, 0.016, 0.064], 0.0, id="no fixed cost"),
        pytest.param([8, 16, 64], [0.007, 0.015, 0.063], 0.0, id="below zero"),
        pytest.param([8, 16, 64], [1.008, 1.016, 1.064], 256.0, id="all fixed cost, clamped"),
        pytest.param([8, 16, 64], [0.3, 0.2, 0.1], 16.0, id="noise: falls with the tokens"),
        pytest.param([8], [0.1], 16.0, id="one point"),
    ],
)
def test_the_fit_stays_within_its_bounds(tokens: list[int], durations_s: list[float], call_cost_tokens: float) -> None:
    call, tokens_per_s = fit(tokens, durations_s)

    assert call == pytest.approx(call_cost_tokens, abs=0.01)
    assert tokens_per_s > 0


def test_a_length_that_the_graph_cannot_take_stops_the_start() -> None:
    with pytest.raises(ModelError, match=r"metronome fails its warm-up with 1 rows of 100 tokens: .*max_length"):
        warm(Metronome(failing_length=100), max_batch_size=8, max_batch_tokens=128)


def test_a_model_that_answers_nan_stops_the_start() -> None:
    nan = ItemFailed(ErrorCode.MODEL_OUTPUT_NOT_FINITE, "the model returned NaN")

    with pytest.raises(ModelError, match="NaN"):
        warm(Metronome(outcome=nan), max_batch_size=8, max_batch_tokens=128)


def test_a_real_model_whose_maximum_length_exceeds_its_positions_is_refused(tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path, max_length=32)
    config = directory / "tokenizer.json"
    config.write_text(config.read_text().replace('"max_length": 32', '"max_length": 64'))
    found = load_dir(directory)
    model = TicketClassifier(found, Session(found.onnx_path, ["CPUExecutionProvider"], threads=1))

    with pytest.raises(ModelError, match="1 rows of 64 tokens"):
        warm_up(model, max_batch_size=4, max_batch_tokens=32)


def test_a_real_model_calibrates_within_the_bounds(tmp_path: Path) -> None:
    found = load_dir(write_tiny_model(tmp_path, max_length=32))
    model = TicketClassifier(found, Session(found.onnx_path, ["CPUExecutionProvider"], threads=1))

    calibration = warm_up(model, max_batch_size=4, max_batch_tokens=128)

    assert 0 <= calibration.call_cost_tokens <= 256
    assert calibration.tokens_per_s > 0
