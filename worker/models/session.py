"""A warm ONNX Runtime session: the one place where the worker meets onnxruntime.

One session is shared by all runner threads: `run` releases the GIL, so with one intra-op thread per call N
runners use N CPUs with one copy of the weights. What is slow, silent or noisy by default is set otherwise
here: spinning threads, the memory pattern, the quiet fall to another execution provider, and native log lines
for errors that are raised anyway. It does not know what the tensors mean; it does not batch, pad or time
anything.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read as it loads; its own builds report usage to Microsoft

import onnxruntime as ort

from schemas.errors import ErrorCode
from worker.errors import ConfigError, ItemFailed, ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from worker.jobs import Cancellation

# Of several outputs, the one that is read.
_PREFERRED_OUTPUTS: Final = ("logits", "probabilities")

_ERROR: Final = 3  # onnxruntime's log severities
_FATAL: Final = 4

_DTYPES: Final[dict[str, np.dtype[np.generic]]] = {
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What the graph says about one input.

    Attributes:
        dtype: what `run` must be fed.
        shape: a number is fixed, a name or None is free.
    """

    dtype: np.dtype[np.generic]
    shape: tuple[int | str | None, ...]


class Session:
    """One model in memory, ready to run on one execution provider. Thread-safe.

    Args:
        path: the ONNX file.
        providers: execution providers, first choice first; each must be there.
        threads: intra-op threads of one call; 1 where several runners share the session.

    Attributes:
        inputs: the graph's inputs by name.
        output_name: the output that `run` returns: `logits`, else `probabilities`, else the only one.
        provider: the execution provider that runs it.
        runtime: name and version of the runtime.

    Raises:
        ConfigError: an asked provider is missing or did not come up.
        ModelError: onnxruntime cannot load the file.
    """

    def __init__(self, path: Path, providers: Sequence[str], threads: int) -> None:
        _require_available(providers)
        try:
            self._session = ort.InferenceSession(path, _options(threads), providers=list(providers), enable_fallback=0)
        except Exception as error:  # onnxruntime's exceptions share no other base
            text = f"{path} cannot be loaded by onnxruntime {ort.__version__}: {error}; export the model again"
            raise ModelError(text) from error
        _require_active(self._session.get_providers(), providers)
        self.inputs: Mapping[str, TensorSpec] = {
            node.name: TensorSpec(_dtype(path, node.name, node.type), tuple(node.shape))
            for node in self._session.get_inputs()
        }
        self.provider = providers[0]
        self.runtime = f"onnxruntime {ort.__version__}"
        self.output_name = _choose_output(path, [node.name for node in self._session.get_outputs()])

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the graph's inputs, in its order."""
        return tuple(self.inputs)

    def run(self, feeds: Mapping[str, NDArray[np.generic]], cancellation: Cancellation) -> NDArray[np.float32]:
        """Run the model once. Blocks, without the GIL, until it is done or cancelled.

        Args:
            feeds: an array for every input, of the dtype that `inputs` names.
            cancellation: ends the run between two operators of the graph.

        Returns:
            The output `output_name`.

        Raises:
            ItemFailed: the model failed or was cancelled.
            MemoryError: it needed more memory than there is.
        """
        options = ort.RunOptions()
        options.log_severity_level = _FATAL  # what fails is raised; the native line would bypass the logs

        def terminate() -> None:
            options.terminate = True

        cancellation.hook(terminate)
        try:
            (output,) = self._session.run([self.output_name], feeds, options)
        except Exception as error:
            raise _failure(error) from error
        return np.asarray(output, np.float32)


def _options(threads: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.enable_cpu_mem_arena = True
    options.enable_mem_pattern = False  # it keeps a plan for every shape, and nearly every batch has another one
    options.log_severity_level = _ERROR
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads would burn the quota
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


def _require_available(providers: Sequence[str]) -> None:
    available = ort.get_available_providers()
    missing = [name for name in providers if name not in available]
    if missing or not providers:
        text = (
            f"execution provider {', '.join(missing) or '(none given)'} is not in this onnxruntime, which "
            f"has {', '.join(available)}: name one of these in BATCHMILL_PROVIDERS, or install the "
            "onnxruntime package that brings it (CUDA: onnxruntime-gpu)"
        )
        raise ConfigError(text)


def _require_active(active: Sequence[str], asked: Sequence[str]) -> None:
    """Refuse what onnxruntime does quietly: going on without a provider whose libraries do not load."""
    if list(active[: len(asked)]) != list(asked):
        text = (
            f"execution providers {', '.join(asked)} were asked for, but onnxruntime runs the model on "
            f"{', '.join(active)}: check the driver and its libraries, or change BATCHMILL_PROVIDERS"
        )
        raise ConfigError(text)


def _dtype(path: Path, name: str, ort_type: str) -> np.dtype[np.generic]:
    try:
        return _DTYPES[ort_type]
    except KeyError:
        text = f"{path}: input {name!r} is {ort_type}; export it as one of {', '.join(_DTYPES)}"
        raise ModelError(text) from None


def _choose_output(path: Path, names: Sequence[str]) -> str:
    for name in _PREFERRED_OUTPUTS:
        if name in names:
            return name
    if len(names) == 1:
        return names[0]
    text = f"{path} has the outputs {', '.join(names)}: name the one to read 'logits' or 'probabilities'"
    raise ModelError(text)


def _failure(error: Exception) -> Exception:
    """Translate what a run raised. Its text stays behind: onnxruntime quotes indices of the input."""
    text = str(error)
    if "Failed to allocate" in text or "bad_alloc" in text or "out of memory" in text.lower():
        return MemoryError("onnxruntime could not allocate what this batch needs")
    return ItemFailed(ErrorCode.INFERENCE_FAILED, f"onnxruntime could not run the model ({type(error).__name__})")
