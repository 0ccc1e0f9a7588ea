import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

from schemas.errors import ErrorCode
from tests.tiny_models import LABELS, write_tiny_model
from worker.errors import ConfigError, ItemFailed, ModelError
from worker.jobs import Cancellation
from worker.models.session import Session

CPU = ["CPUExecutionProvider"]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(write_tiny_model(tmp_path, endless_word="endless") / "model.onnx", CPU, threads=1)


def feeds(rows: int, length: int, token: int = 70) -> dict[str, np.ndarray]:
    ids = np.full((rows, length), token)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def write_graph(
    path: Path, nodes: Sequence[NodeProto], dtype: int = TensorProto.INT64, outputs: Sequence[str] = ("y",)
) -> Path:
    inputs = [helper.make_tensor_value_info("x", dtype, ["n"])]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    one = numpy_helper.from_array(np.array(1, np.float32), "one")
    graph = helper.make_graph(nodes, "graph", inputs, results, [one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def to_float(*names: str) -> list[NodeProto]:
    return [helper.make_node("Cast", ["x"], [name], to=TensorProto.FLOAT) for name in names]


def test_a_run_returns_float32_for_each_row_and_label(session: Session) -> None:
    logits = session.run(feeds(3, 5), Cancellation())

    assert (logits.shape, logits.dtype) == ((3, len(LABELS)), np.float32)


def test_a_session_says_what_it_takes_and_what_runs_it(session: Session) -> None:
    assert session.input_names == ("input_ids", "attention_mask", "token_type_ids")
    assert session.inputs["input_ids"].dtype == np.int64
    assert session.inputs["input_ids"].shape == ("batch", "sequence")
    assert session.output_name == "logits"
    assert session.provider == "CPUExecutionProvider"
    assert session.runtime.startswith("onnxruntime 1.")


def test_a_provider_that_is_missing_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path) / "model.onnx"

    with pytest.raises(ConfigError, match=r"NoSuchProvider is not in .*CPUExecutionProvider.*BATCHMILL_PROVIDERS"):
        Session(path, ["NoSuchProvider", "CPUExecutionProvider"], threads=1)
    with pytest.raises(ConfigError, match="none given"):
        Session(path, [], threads=1)


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no protobuf")

    with pytest.raises(ModelError, match=r"broken\.onnx cannot be loaded by onnxruntime"):
        Session(tmp_path / "broken.onnx", CPU, threads=1)


def test_a_cancelled_run_ends_although_the_model_would_not(session: Session, tmp_path: Path) -> None:
    endless = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).token_to_id("endless")
    cancellation = Cancellation()
    ended = threading.Event()

    def run() -> None:
        with pytest.raises(ItemFailed):
            session.run(feeds(1, 4, token=endless), cancellation)
        ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert not ended.wait(0.2)
    cancellation.cancel()
    thread.join(10)

    assert ended.is_set()
    assert session.run(feeds(1, 4), Cancellation()).shape == (1, len(LABELS))


def test_a_run_that_is_cancelled_before_it_starts_does_not_run(session: Session) -> None:
    cancellation = Cancellation()
    cancellation.cancel()

    with pytest.raises(ItemFailed):
        session.run(feeds(1, 4), cancellation)


def test_a_failing_run_names_no_input_and_leaves_the_session_working(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ItemFailed) as caught:
        session.run(feeds(1, 4, token=987_654), Cancellation())

    assert caught.value.code is ErrorCode.INFERENCE_FAILED
    assert "987654" not in str(caught.value)
    assert "987654" not in "".join(capfd.readouterr())
    assert session.run(feeds(1, 4), Cancellation()).shape == (1, len(LABELS))


def test_a_batch_that_needs_too_much_memory_is_a_memory_error(tmp_path: Path) -> None:
    path = write_graph(
        tmp_path / "big.onnx",
        [
            helper.make_node("Expand", ["one", "x"], ["big"]),
            helper.make_node("ReduceSum", ["big"], ["y"], keepdims=0),
        ],
    )
    session = Session(path, CPU, threads=1)

    with pytest.raises(MemoryError):
        session.run({"x": np.array([10**8, 10**8])}, Cancellation())
    assert session.run({"x": np.array([2, 3])}, Cancellation()) == 6


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        pytest.param(["hidden", "logits"], "logits", id="logits"),
        pytest.param(["label", "probabilities"], "probabilities", id="probabilities"),
        pytest.param(["scores"], "scores", id="the only one"),
    ],
)
def test_of_several_outputs_the_telling_one_is_read(tmp_path: Path, outputs: list[str], expected: str) -> None:
    path = write_graph(tmp_path / "m.onnx", to_float(*outputs), outputs=outputs)

    assert Session(path, CPU, threads=1).output_name == expected


def test_outputs_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "m.onnx", to_float("a", "b"), outputs=["a", "b"])

    with pytest.raises(ModelError, match=r"outputs a, b: name the one to read 'logits'"):
        Session(path, CPU, threads=1)


def test_inputs_of_32_bits_are_reported_as_such(tmp_path: Path) -> None:
    session = Session(write_graph(tmp_path / "m.onnx", to_float("y"), TensorProto.INT32), CPU, threads=1)

    assert session.inputs["x"].dtype == np.int32


def test_an_input_of_another_type_is_refused(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "m.onnx", to_float("y"), TensorProto.UINT8)

    with pytest.raises(ModelError, match=r"input 'x' is tensor\(uint8\)"):
        Session(path, CPU, threads=1)


def test_several_threads_share_one_session_and_get_what_one_gets(session: Session) -> None:
    expected = session.run(feeds(4, 6), Cancellation())
    results: list[np.ndarray] = []

    def run() -> None:
        results.extend(session.run(feeds(4, 6), Cancellation()) for _ in range(20))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(results) == 80
    assert all(np.array_equal(result, expected) for result in results)


def test_nothing_is_reported_to_the_makers_of_the_runtime(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    code = (
        "import sys; from pathlib import Path; from worker.models.session import Session; "
        "Session(Path(sys.argv[1]), ['CPUExecutionProvider'], 1)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}

    subprocess.run(
        [sys.executable, "-c", code, str(model / "model.onnx")],
        check=True,
        cwd=Path(__file__).parents[2],
        env=environment | {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")},
    )

    assert not list((tmp_path / "home").rglob("*"))
