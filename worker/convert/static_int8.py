"""Turns the convolutions of an FP32 network into INT8 with value ranges measured beforehand.

Why it exists: for convolutions over pictures, static quantisation is what makes a CPU faster: a weight has a scale per
output channel, an activation one scale that was measured on pages like those to come. The result does not depend on
what shares a batch, since no range is taken from the batch. Only Conv is touched: the rest loses more than it gains.
onnxruntime's own quantiser does the work, after two preparations. The graph is raised to opset 17, because scales per
channel need 13 and the layer norms are one operator from 17 on. And what a session would fuse while it loads is fused
before: a bias that still stands apart, or a Gelu in five pieces, could no longer be fused around 8-bit tensors, and
costs more than the quantising saves. This module does not judge the loss.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import ModelProto, version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)

PRECISION: Final = "int8-static"

_OPSET: Final = 17
_ERROR: Final = 3  # onnxruntime's log severity

Input = NDArray[np.float32]


class _Samples(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no annotations
    """Feeds the quantiser one sample after the other."""

    def __init__(self, name: str, samples: Iterable[Input]) -> None:
        self._feeds: Iterator[Mapping[str, Input]] = ({name: sample} for sample in samples)

    def get_next(self) -> Mapping[str, Input] | None:
        return next(self._feeds, None)


def quantise_convolutions(model: ModelProto, samples: Iterable[Input], keep: Iterable[str] = ()) -> ModelProto:
    """Return a copy whose convolutions are INT8. Blocks while it runs the network over the samples.

    Args:
        model: FP32, one input.
        samples: what the input is fed with while ranges are measured.
        keep: names of nodes that stay FP32.
    """
    with TemporaryDirectory() as name, _quiet():
        directory = Path(name)
        after = directory / "int8.onnx"
        quantize_static(
            str(_fused(model, directory)),
            str(after),
            _Samples(model.graph.input[0].name, samples),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=list(keep),
            calibrate_method=CalibrationMethod.MinMax,
        )
        return onnx.load(after)


def _fused(model: ModelProto, directory: Path) -> Path:
    """Write the graph as a session would run it on any CPU, but with plain convolutions, which can be quantised."""
    raised, fused = directory / "raised.onnx", directory / "fused.onnx"
    onnx.save(version_converter.convert_version(model, _OPSET), raised)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(fused)
    options.log_severity_level = _ERROR
    providers = ["CPUExecutionProvider"]
    ort.InferenceSession(str(raised), options, providers, disabled_optimizers=["ConvActivationFusion"])
    return fused


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the quantiser's advice to prepare the graph: that is done, and it logs to the root logger."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
