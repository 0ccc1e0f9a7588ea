"""OCR models are built for real, from the pinned wheels; they read what the project renders, whichever way up."""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from schemas.ocr_manifest import OcrManifest
from tasks.ocr import crops
from tasks.ocr.build import build_ocr, ocr_model_dir
from tasks.ocr.profiles import PROFILES, load_profile
from tasks.ocr.reader import PageReader
from tasks.ocr.recipe import Figures, require_good
from tasks.ocr.specimens import CALADEA, LATO, Specimen, read_fonts, specimens
from tests.ocr_models import built_ocr_model
from worker.convert.wheels import fetch
from worker.errors import ConfigError, ModelError

BUILD_TIMEOUT_S = 900
BUILT = ("accurate", "fast", "tiny")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_TIMEOUT_S)]


@pytest.fixture(scope="module")
def built(ocr_cache: Path) -> dict[str, Path]:
    """The models by profile."""
    return {name: built_ocr_model(ocr_cache, name) for name in BUILT}


@pytest.fixture(scope="module")
def accurate(built: dict[str, Path]) -> PageReader:
    return PageReader(built["accurate"])


@pytest.fixture(scope="module")
def specimen(ocr_cache: Path, built: dict[str, Path]) -> Specimen:
    """A rendered page; it is asked for after a build, so the typefaces are there."""
    assert built
    fonts = read_fonts(fetch(LATO, ocr_cache / "wheels"), fetch(CALADEA, ocr_cache / "wheels"))
    return next(specimens(fonts, "test", 1))


@pytest.fixture(scope="module")
def upright(accurate: PageReader, specimen: Specimen) -> str:
    """What the rendered page says."""
    return accurate.read(specimen.image).text


def words(text: str) -> set[str]:
    return set(text.split())


@pytest.mark.parametrize("name", BUILT)
def test_the_directory_is_complete_and_says_what_it_is(built: dict[str, Path], ocr_cache: Path, name: str) -> None:
    directory = built[name]
    assert directory == ocr_model_dir(ocr_cache, name)
    assert {each.name for each in directory.iterdir()} == {
        *("orientation.onnx", "detection.onnx", "recognition.onnx", "dictionary.txt"),
        *("model.json", "LICENSE", "NOTICE"),
    }
    manifest = OcrManifest.model_validate_json((directory / "model.json").read_bytes())
    assert (manifest.name, manifest.precision) == (f"ocr-{name}", PROFILES[name].precision)
    assert f"PP-OCRv6 {PROFILES[name].size}" in (directory / "NOTICE").read_text(encoding="utf-8")
    assert "Apache License" in (directory / "LICENSE").read_text(encoding="utf-8")


def test_only_profiles_for_all_scripts_know_other_scripts(built: dict[str, Path]) -> None:
    known = {name: load_profile(directory).dictionary.split("\n") for name, directory in built.items()}
    assert len(known["accurate"]) == 18_708
    assert set("äöüÄÖÜß€§–") <= set(known["fast"]) & set(known["tiny"])
    assert not set("中あ한ж") & (set(known["fast"]) | set(known["tiny"]))


@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize(
    ("height", "width", "letter_px"),
    [
        pytest.param(1_754, 1_240, 17, id="A4 at 150 dpi, 8 point"),
        pytest.param(3_508, 2_480, 46, id="A4 at 300 dpi, 11 point"),
        pytest.param(5_000, 7_000, 75, id="a plan of 140 megapixels, as it is decoded"),
    ],
)
def test_a_line_alone_on_a_page_is_read(
    built: dict[str, Path], name: str, height: int, width: int, letter_px: int
) -> None:
    page = np.full((height, width, 3), 255, np.uint8)
    cv2.putText(page, "Seite 2 von 2", (150, 200), (0, 0, 0), cv2.FontFace("sans"), letter_px, 400)
    assert PageReader(built[name]).read(page).text == "Seite 2 von 2"


def test_a_line_that_reaches_into_a_drawing_is_read_once(accurate: PageReader) -> None:
    page = np.full((3_508, 2_480, 3), 255, np.uint8)
    cv2.polylines(page, [np.array([[300, 300], [300, 2_000], [1_500, 2_000]])], False, (0, 0, 0), 6)  # noqa: FBT003 - OpenCV's
    cv2.putText(page, "Seite 2 von 2 im Anhang", (1_400, 1_000), (0, 0, 0), cv2.FontFace("sans"), 34, 400)
    assert accurate.read(page).text == "Seite 2 von 2 im Anhang"


@pytest.mark.parametrize(("name", "least"), [("accurate", 0.93), ("fast", 0.90), ("tiny", 0.80)])
def test_a_rendered_page_is_read(built: dict[str, Path], specimen: Specimen, name: str, least: float) -> None:
    page = PageReader(built[name]).read(specimen.image)
    expected = words("\n".join(specimen.lines))
    assert len(expected & words(page.text)) / len(expected) >= least
    assert page.rotation == 0
    assert (page.height, page.width) == specimen.image.shape[:2]


@pytest.mark.parametrize("turned", [90, 180, 270])
def test_a_page_is_read_whichever_way_up_it_was_scanned(
    accurate: PageReader, specimen: Specimen, upright: str, turned: int
) -> None:
    scanned = np.ascontiguousarray(np.rot90(specimen.image, -turned // 90))
    page = accurate.read(scanned)
    assert page.rotation == turned
    assert page.text == upright


def test_a_line_says_the_same_alone_and_in_any_batch(accurate: PageReader, specimen: Specimen) -> None:
    boxes = accurate.detect(specimen.image)
    cut = [crop for line, box in enumerate(boxes) for crop in crops.crops(specimen.image, box.corners, line)]
    together = [reading.text for reading in accurate.recognise(cut)]
    alone = [accurate.recognise([crop])[0].text for crop in cut]
    order = np.random.default_rng(0).permutation(len(cut))
    shuffled = accurate.recognise([cut[index] for index in order])
    assert alone == together
    assert [reading.text for reading in shuffled] == [together[index] for index in order]


@pytest.mark.parametrize(
    "shape", [(1, 1), (8, 8), (1, 900), (900, 1), (1_600, 1_200)], ids=["1x1", "8x8", "row", "column", "page"]
)
def test_a_blank_page_of_any_shape_says_nothing(accurate: PageReader, shape: tuple[int, int]) -> None:
    page = accurate.read(np.full((*shape, 3), 255, np.uint8))
    assert (page.lines, page.text) == ((), "")


def test_a_second_build_finds_the_first(built: dict[str, Path], ocr_cache: Path) -> None:
    said: list[str] = []
    assert build_ocr(ocr_cache, "accurate", said.append) == built["accurate"]
    assert said == ["The model is there already."]


def test_an_unknown_profile_is_named_beside_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no OCR profile 'best': choose one of accurate, latin, fast, tiny"):
        build_ocr(tmp_path, "best")


@pytest.mark.parametrize(
    ("figures", "fault"),
    [
        (Figures(lines=100, right=0.5, parity=1.0), "reads 50.0% of the rendered lines right"),
        (Figures(lines=100, right=0.95, parity=0.5), "50.0% of the rendered lines read as with the original"),
    ],
)
def test_a_model_that_reads_badly_is_not_published(figures: Figures, fault: str) -> None:
    with pytest.raises(ModelError, match=fault):
        require_good(figures, PROFILES["fast"])


@pytest.mark.parametrize("package", ["onnx", "cv2"])
def test_without_its_packages_the_builder_imports_and_says_what_to_install(package: str, tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        f"sys.modules[{package!r}] = None\n"
        "from tasks.ocr import build\n"
        "from worker.errors import ConfigError\n"
        "try:\n"
        "    build.build_ocr(pathlib.Path(sys.argv[1]), 'fast')\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert f"package {package}: pip install 'batchmill[build,ocr]'" in done.stdout


def test_the_manifest_says_what_was_measured(built: dict[str, Path]) -> None:
    manifest = json.loads((built["fast"] / "model.json").read_text(encoding="utf-8"))
    judged = manifest["provenance"]["judged"]
    assert judged["as_original"] >= PROFILES["fast"].least_parity
    assert judged["lines"] > 100
