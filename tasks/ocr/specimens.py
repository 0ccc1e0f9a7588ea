"""Pages rendered by the project whose text is known: to calibrate 8-bit networks with, and to judge a build by.

Why it exists: a network's value ranges must be measured on pages like those to come, and a build must be judged on
pages that it was not calibrated on; scans of others cannot be shipped. The words are the project's own tickets, German
and English (training part to calibrate, test part to judge), between lines as invoices have them. A page is drawn from
a seed alone: fonts, sizes, slant, blur, noise, contrast. It knows no network.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tasks.classify.corpus import tickets
from worker.convert.wheels import PinnedWheel, read_member

# Free typefaces (Lato: OFL-1.1, Caladea: Apache-2.0); they are read while a model is built and are no part of it.
LATO: Final = PinnedWheel(
    requirement="font-lato==0.1.0",
    filename="font_lato-0.1.0-py3-none-any.whl",
    sha256="ff74f2d4647187bac4b853ab8215e6b2afe124fcd01c809629aadd8f4356e959",
)
CALADEA: Final = PinnedWheel(
    requirement="font-caladea==0.0.2",
    filename="font_caladea-0.0.2-py3-none-any.whl",
    sha256="eab5b77f1da830226524f419d16d4bc4cb5b68d2de0f47ef83760a8b202e94bc",
)

_LATO_FACES: Final = ("Regular", "Bold", "Italic")
_CALADEA_FACES: Final = ("Regular", "Bold", "Italic")
_SIZES: Final = (15, 32)  # pixels of a letter's body
_WIDTHS: Final = (760, 1_500)  # pixels of a page
_INVOICE_LINES: Final = (
    "Rechnung Nr. {0} vom {1:02d}.{2:02d}.2024",
    "Überweisung über {0},{1:02d} € gemäß § {2} Abs. 3",
    "Größe XL – {1} Stück à {2},{1:02d} € = {0},00 €",
    "IBAN DE{1:02d} 3704 0044 {0} 0130 {2:02d}",
    "Öffnungszeiten: Mo–Fr {2}:30–17:00 Uhr, Änderungen vorbehalten",
    "Total: £{0}.{1:02d} (VAT {2} %) / Übermaß ±{2} °C, {1} mm",
    "Straße: Äußere Weißenburger Straße {1}, 9{0} Nürnberg",
)


class Specimen(NamedTuple):
    """A page and what stands on it.

    Attributes:
        image: uint8[height, width, 3], BGR.
        lines: from top to bottom.
    """

    image: NDArray[np.uint8]
    lines: tuple[str, ...]


Fonts = Sequence[bytes]


def read_fonts(lato: Path, caladea: Path) -> Fonts:
    """Read the typefaces out of the two wheels.

    Raises:
        ConfigError: a wheel is broken.
    """
    return [
        *(read_member(lato, f"font_lato/files/Lato-{face}.ttf") for face in _LATO_FACES),
        *(read_member(caladea, f"font_caladea/files/Caladea-{face}.ttf") for face in _CALADEA_FACES),
    ]


def specimens(fonts: Fonts, part: Literal["train", "test"], pages: int) -> Iterator[Specimen]:
    """Draw pages, the same ones each time.

    Args:
        fonts: typefaces in which the pages are set.
        part: of the tickets, of which the words are.
        pages: how many.
    """
    texts = [" ".join(" ".join(ticket.fields.values()).split()) for ticket in tickets.read(part)]
    for page in range(pages):
        chance = np.random.default_rng([page, len(part)])
        yield _page(fonts, texts, chance)


def _page(fonts: Fonts, texts: Sequence[str], chance: np.random.Generator) -> Specimen:
    size = int(chance.integers(*_SIZES, endpoint=True))
    width = int(chance.integers(*_WIDTHS, endpoint=True))
    font = ImageFont.truetype(io.BytesIO(fonts[int(chance.integers(len(fonts)))]), size)
    margin = int(chance.integers(30, 90))
    lines: list[str] = []
    for text in chance.choice(texts, 8):
        lines += [_invoice_line(chance), *_wrapped(str(text), font, width - 2 * margin)]
    spacing = int(size * chance.uniform(1.35, 1.9))
    canvas = Image.new("L", (width, 2 * margin + spacing * len(lines)), 255)
    draw = ImageDraw.Draw(canvas)
    for number, line in enumerate(lines):
        draw.text((margin, margin + spacing * number), line, font=font, fill=0)
    return Specimen(_scanned(np.asarray(canvas), chance), tuple(lines))


def _invoice_line(chance: np.random.Generator) -> str:
    template = _INVOICE_LINES[int(chance.integers(len(_INVOICE_LINES)))]
    return template.format(int(chance.integers(1000, 9999)), int(chance.integers(1, 28)), int(chance.integers(1, 12)))


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Break a text into lines of at most `width` pixels; a longer word stands alone."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return [line for line in lines if line]


def _scanned(paper: NDArray[np.uint8], chance: np.random.Generator) -> NDArray[np.uint8]:
    """Do to a clean page what a scanner does: slant, blur, a grey range, noise, JPEG."""
    height, width = paper.shape
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), float(chance.normal(0, 0.4)), 1.0)
    slanted = cv2.warpAffine(paper, turn, (width, height), flags=cv2.INTER_CUBIC, borderValue=(255.0,))
    blurred = cv2.GaussianBlur(slanted, (0, 0), float(chance.uniform(0.2, 0.9)))
    black, white = chance.uniform(0, 70), chance.uniform(190, 255)
    noise = chance.normal(0, chance.uniform(0, 7), paper.shape)
    grey = np.clip(black + blurred.astype(np.float32) * ((white - black) / 255) + noise, 0, 255)
    _, jpeg = cv2.imencode(".jpg", grey.astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 80])
    return np.asarray(cv2.imdecode(jpeg, cv2.IMREAD_COLOR), np.uint8)
