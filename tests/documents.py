"""One document of every kind that is read, and of every kind that is not, made when a test asks for it.

The picture in each is the same German text, so that a page can be compared with what was put into the file. The font is
the one inside OpenCV: it has ä ö ü ß €, which Pillow's does not.
"""

from __future__ import annotations

import io
import struct
import zlib
from functools import cache
from typing import TYPE_CHECKING

import cv2
import numpy as np
from PIL import Image, ImageChops, TiffImagePlugin
from PIL.Image import Transpose

from schemas.errors import ErrorCode
from tests import pdf_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

LINES = (
    "Rechnung Nr. 4711 für Öl, Äpfel und Übergrößen",
    "Straße: Weißenburger Straße 27b, 90429 Nürnberg",
    "Zu zahlen: 1.234,56 € – fällig gemäß § 14 Abs. 3",
)
WIDTH, HEIGHT = 640, 160
WHITE, BLACK = 255, 0
_PNG = b"\x89PNG\r\n\x1a\n"


@cache
def picture(ink: int = BLACK, paper: int = WHITE, width: int = WIDTH, height: int = HEIGHT) -> Pixels:
    """The text as `uint8[height, width, 3]`, BGR."""
    pixels = np.full((height, width, 3), paper, np.uint8)
    font = cv2.FontFace("sans")
    for number, line in enumerate(LINES):
        cv2.putText(pixels, line, (15, 45 + 45 * number), (ink, ink, ink), font, 22, 400)
    return pixels


def image(mode: str = "RGB") -> Image.Image:
    return Image.fromarray(picture()[..., ::-1]).convert(mode)


def saved(source: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    source.save(out, form, **options)
    return out.getvalue()


def ink_on_nothing(ink: int) -> Image.Image:
    """Text of one gray on a transparent ground whose hidden colour is that of the ink."""
    darkness = 255 - picture()[..., 0]
    return Image.fromarray(np.dstack([np.full_like(picture(), ink), darkness]))


def with_orientation(orientation: int) -> bytes:
    """A JPEG that is stored turned or mirrored, and says so."""
    undone = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_90,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_270,
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = image().transpose(undone[orientation]) if orientation in undone else image()
    return saved(stored, "JPEG", quality=95, exif=exif)


def plain_cmyk_jpeg() -> bytes:
    """A CMYK JPEG without Adobe's mark, and so not inverted."""
    data = saved(ImageChops.invert(image("CMYK")), "JPEG", quality=95)
    at = data.index(b"\xff\xee")
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4]) :]


def sixteen_bit() -> Image.Image:
    return Image.fromarray(picture()[..., 0].astype(np.uint16) * 257)


def keyed_palette() -> bytes:
    """A palette PNG whose background is a transparent entry."""
    return saved(image("L").quantize(16), "PNG", transparency=_background_index())


def _background_index() -> int:
    index = image("L").quantize(16).getpixel((0, 0))
    assert isinstance(index, int)
    return index


def fax() -> bytes:
    """A 1-bit G4 fax: half as many rows as columns to the inch."""
    low = image("L").resize((WIDTH, HEIGHT * 98 // 204), Image.Resampling.LANCZOS).convert("1")
    return saved(low, "TIFF", compression="group4", dpi=(204, 98))


def one_bit() -> Image.Image:
    return image("L").point(lambda value: 255 * (value > 127), "1")


def tiff_with_a_hole() -> bytes:
    """A TIFF whose last strip is half blanked: libtiff complains on standard error."""
    data = bytearray(saved(image(), "TIFF", compression="tiff_lzw"))
    with Image.open(io.BytesIO(data)) as opened:
        assert isinstance(opened, TiffImagePlugin.TiffImageFile)
        place, length = opened.tag_v2[273][-1], opened.tag_v2[279][-1]
    data[place + length // 2 : place + length] = bytes(length - length // 2)
    return bytes(data)


def three_pages(**options: object) -> bytes:
    return saved(image(), "TIFF", save_all=True, append_images=[image("L"), one_bit()], **options)


def turned_tiff() -> bytes:
    return saved(image().transpose(Transpose.ROTATE_90), "TIFF", tiffinfo={0x0112: 6})


def colour_of_48_bits() -> bytes:
    return bytes(cv2.imencode(".png", picture().astype(np.uint16) * 257)[1])


def pdf_of(data: bytes, filtered: bytes) -> bytes:
    return pdf_files.one_image(pdf_files.image_object(data, WIDTH, HEIGHT, filtered), WIDTH, HEIGHT)


DOCUMENTS: Mapping[str, Callable[[], bytes]] = {
    "jpeg": lambda: saved(image(), "JPEG", quality=95),
    "jpeg-gray": lambda: saved(image("L"), "JPEG", quality=95),
    "jpeg-progressive": lambda: saved(image(), "JPEG", quality=95, progressive=True),
    "jpeg-cmyk-adobe": lambda: saved(image("CMYK"), "JPEG", quality=95),
    "jpeg-cmyk-plain": plain_cmyk_jpeg,
    **{f"jpeg-exif-{number}": lambda number=number: with_orientation(number) for number in range(1, 9)},
    "png": lambda: saved(image(), "PNG"),
    "png-gray": lambda: saved(image("L"), "PNG"),
    "png-1-bit": lambda: saved(one_bit(), "PNG"),
    "png-16-bit": lambda: saved(sixteen_bit(), "PNG"),
    "png-48-bit": colour_of_48_bits,
    "png-palette": lambda: saved(image("L").quantize(16), "PNG"),
    "png-palette-transparent": keyed_palette,
    "png-colour-transparent": lambda: saved(image(), "PNG", transparency=(255, 255, 255)),
    "png-gray-alpha": lambda: saved(ink_on_nothing(BLACK).convert("LA"), "PNG"),
    "png-alpha": lambda: saved(ink_on_nothing(BLACK), "PNG"),
    "png-alpha-opaque": lambda: saved(image("RGBA"), "PNG"),
    "tiff": lambda: saved(image(), "TIFF"),
    "tiff-lzw": lambda: saved(image(), "TIFF", compression="tiff_lzw"),
    "tiff-jpeg": lambda: saved(image(), "TIFF", compression="jpeg", quality=95),
    "tiff-cmyk": lambda: saved(image("CMYK"), "TIFF"),
    "tiff-16-bit": lambda: saved(sixteen_bit(), "TIFF"),
    "tiff-big": lambda: saved(image(), "TIFF", big_tiff=True),
    "tiff-turned": turned_tiff,
    "tiff-3-pages": three_pages,
    "tiff-3-pages-deflate": lambda: three_pages(compression="tiff_adobe_deflate"),
    "tiff-fax-204x98": fax,
    "webp": lambda: saved(image(), "WEBP", quality=95),
    "webp-lossless": lambda: saved(image(), "WEBP", lossless=True),
    "webp-alpha": lambda: saved(ink_on_nothing(BLACK), "WEBP", lossless=True),
    "webp-animated": lambda: saved(image(), "WEBP", save_all=True, append_images=[Image.new("RGB", (WIDTH, HEIGHT))]),
    "bmp": lambda: saved(image(), "BMP"),
    "bmp-palette": lambda: saved(image("L").quantize(16), "BMP"),
    "gif": lambda: saved(image("L"), "GIF"),
    "gif-animated": lambda: saved(image("L"), "GIF", save_all=True, append_images=[Image.new("L", (WIDTH, HEIGHT))]),
    "gif-transparent": lambda: saved(image("L").quantize(16), "GIF", transparency=_background_index()),
    "pdf-2-pages": lambda: pdf_files.scans([image(), image()]),
    "pdf-flate": lambda: pdf_of(zlib.compress(image().tobytes()), b"FlateDecode"),
    "pdf-jpeg-2000": lambda: pdf_of(saved(image(), "JPEG2000"), b"JPXDecode"),
    "pdf-turned": lambda: pdf_files.scans([image().transpose(Transpose.ROTATE_90)], rotate=90),
}


def png_claiming(width: int, height: int, rows: int = 3) -> bytes:
    """A PNG whose header promises more than the few rows that follow."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = zlib.compress(bytes((1 + 3 * width) * rows))
    return _PNG + b"".join(map(_chunk, (b"IHDR", b"IDAT", b"IEND"), (header, content, b"")))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def even_png(width: int, height: int, pixel: bytes) -> bytes:
    """A PNG with alpha and one colour, made without holding its pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    content = deflated(b"\x00" + pixel * width, height)
    return _PNG + b"".join(map(_chunk, (b"IHDR", b"IDAT", b"IEND"), (header, content, b"")))


def deflated(row: bytes, times: int) -> bytes:
    packer = zlib.compressobj(1)
    return b"".join(packer.compress(row) for _ in range(times)) + packer.flush()


def png_with_text_bomb() -> bytes:
    """A PNG of a kilobyte with 300 MB of compressed comments before its pixels."""
    data = saved(image(), "PNG")
    bomb = _chunk(b"zTXt", b"Comment\x00\x00" + zlib.compress(bytes(100_000_000), 9))
    after_header = 8 + 25
    return data[:after_header] + 3 * bomb + data[after_header:]


def jpeg_claiming(width: int, height: int, **options: object) -> bytes:
    data = saved(image(), "JPEG", **options)
    at = data.index(b"\xff\xc2" if options.get("progressive") else b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def jpeg_of_many_scans() -> bytes:
    data = saved(image(), "JPEG", progressive=True)
    last_scan = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + 5_000 * last_scan + data[-2:]


def tiff_claiming(**tags: int) -> bytes:
    """A TIFF with some of its numbers replaced: `width`, `height`, `rows` of a strip, `bits`, `next` directory."""
    codes = {"width": 256, "height": 257, "rows": 278, "photometric": 262, "compression": 259}
    data = bytearray(saved(image(), "TIFF", compression="tiff_lzw"))
    (at,) = struct.unpack_from("<I", data, 4)
    (entries,) = struct.unpack_from("<H", data, at)
    for place in range(at + 2, at + 2 + 12 * entries, 12):
        (code,) = struct.unpack_from("<H", data, place)
        for name, value in tags.items():
            if codes.get(name) == code:
                struct.pack_into("<HHII", data, place, code, 4, 1, value)
    if "next" in tags:
        struct.pack_into("<I", data, at + 2 + 12 * entries, tags["next"])
    return bytes(data)


def directories(data: bytes) -> list[int]:
    """Where each page of a little-endian TIFF starts."""
    found = []
    (at,) = struct.unpack_from("<I", data, 4)
    while at:
        found.append(at)
        (entries,) = struct.unpack_from("<H", data, at)
        (at,) = struct.unpack_from("<I", data, at + 2 + 12 * entries)
    return found


def joined(*files: bytes) -> bytes:
    """TIFFs of one page each as the pages of one, by Pillow's own appending writer."""
    out = io.BytesIO()
    with TiffImagePlugin.AppendingTiffWriter(out, new=True) as writer:
        for data in files:
            writer.write(data)
            writer.newFrame()
    return out.getvalue()


def interlaced_black(width: int, height: int) -> bytes:
    """An Adam7 PNG of zeros, at most 64 pixels wide."""
    rows = bytearray()
    for left, top, across, down in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        rows += bytes((1 + len(range(left, width, across))) * len(range(top, height, down)))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 1)
    content = zlib.compress(bytes(rows))
    return _PNG + b"".join(map(_chunk, (b"IHDR", b"IDAT", b"IEND"), (header, content, b"")))


def webp_claiming(width: int, height: int) -> bytes:
    body = b"VP8X" + struct.pack("<II", 10, 0) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body += saved(image(), "WEBP")[12:]
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def gif_claiming(width: int, height: int) -> bytes:
    data = saved(image("L"), "GIF")
    return data[:6] + struct.pack("<HH", width, height) + data[10:]


def bmp_claiming(width: int, height: int) -> bytes:
    data = saved(image(), "BMP")
    return data[:18] + struct.pack("<ii", width, height) + data[26:]


def halved(name: str) -> Callable[[], bytes]:
    return lambda: (whole := DOCUMENTS[name]())[: len(whole) // 2]


# Not read; the code is the document's, or that of its only page.
REFUSED: Mapping[str, tuple[Callable[[], bytes], ErrorCode]] = {
    "empty": (lambda: b"", ErrorCode.EMPTY_DOCUMENT),
    "one-byte": (lambda: b"\x89", ErrorCode.UNSUPPORTED_FORMAT),
    "html-as-png": (lambda: b"<html><body>no image</body></html>", ErrorCode.UNSUPPORTED_FORMAT),
    "svg": (lambda: b'<svg xmlns="http://www.w3.org/2000/svg"/>', ErrorCode.UNSUPPORTED_FORMAT),
    "eps": (lambda: saved(image("L"), "EPS"), ErrorCode.UNSUPPORTED_FORMAT),
    "ppm": (lambda: saved(image(), "PPM"), ErrorCode.UNSUPPORTED_FORMAT),
    "ico": (lambda: saved(image(), "ICO"), ErrorCode.UNSUPPORTED_FORMAT),
    "jpeg-2000": (lambda: saved(image(), "JPEG2000"), ErrorCode.UNSUPPORTED_FORMAT),
    "zip": (lambda: b"PK\x03\x04" + bytes(100), ErrorCode.UNSUPPORTED_FORMAT),
    "zeros": (lambda: bytes(4096), ErrorCode.UNSUPPORTED_FORMAT),
    "tiff-of-floats": (lambda: saved(image("F"), "TIFF"), ErrorCode.UNSUPPORTED_FORMAT),
    **{
        f"{name}-cut": (halved(name), ErrorCode.DAMAGED_DOCUMENT)
        for name in (
            "jpeg",
            "jpeg-progressive",
            "png",
            "tiff-lzw",
            "webp",
            "webp-lossless",
            "bmp",
            "gif",
            "pdf-2-pages",
        )
    },
    **{
        f"{name}-head-only": (lambda head=head: head, ErrorCode.DAMAGED_DOCUMENT)
        for name, head in {
            "jpeg": b"\xff\xd8\xff\xe0",
            "png": b"\x89PNG\r\n\x1a\n",
            "tiff": b"II*\x00",
            "tiff-big": b"II+\x00\x08\x00\x00\x00",
            "webp": b"RIFF\x00\x00\x00\x00WEBP",
            "gif": b"GIF89a",
            "bmp": b"BM",
            "pdf": b"%PDF-1.7\n",
        }.items()
    },
    "jpeg-as-png": (lambda: b"\x89PNG\r\n\x1a\n" + DOCUMENTS["jpeg"](), ErrorCode.DAMAGED_DOCUMENT),
    "png-of-3600-megapixels": (lambda: png_claiming(60_000, 60_000), ErrorCode.IMAGE_TOO_LARGE),
    "png-of-151-megapixels": (lambda: png_claiming(15_100, 10_000), ErrorCode.IMAGE_TOO_LARGE),
    "png-of-one-long-row": (lambda: png_claiming(140_000_000, 1, rows=0), ErrorCode.IMAGE_TOO_LARGE),
    "png-of-few-rows": (lambda: png_claiming(10_000, 10_000), ErrorCode.DAMAGED_DOCUMENT),
    "png-text-bomb": (png_with_text_bomb, ErrorCode.DAMAGED_DOCUMENT),
    "jpeg-of-4295-megapixels": (lambda: jpeg_claiming(65_535, 65_535), ErrorCode.IMAGE_TOO_LARGE),
    "jpeg-progressive-900-mb": (
        lambda: jpeg_claiming(14_000, 10_000, progressive=True, subsampling=0),
        ErrorCode.IMAGE_TOO_LARGE,
    ),
    "jpeg-of-many-scans": (jpeg_of_many_scans, ErrorCode.DAMAGED_DOCUMENT),
    "tiff-of-3600-megapixels": (lambda: tiff_claiming(width=60_000, height=60_000), ErrorCode.IMAGE_TOO_LARGE),
    "tiff-of-one-huge-strip": (
        lambda: tiff_claiming(width=12_000, height=12_000, rows=12_000),
        ErrorCode.IMAGE_TOO_LARGE,
    ),
    "tiff-without-pages": (lambda: b"II*\x00\x00\x00\x00\x00", ErrorCode.EMPTY_DOCUMENT),
    "tiff-with-a-hole": (tiff_with_a_hole, ErrorCode.DAMAGED_DOCUMENT),
    "webp-of-268-megapixels": (lambda: webp_claiming(16_383, 16_383), ErrorCode.IMAGE_TOO_LARGE),
    "webp-of-a-larger-canvas": (lambda: webp_claiming(1_000, 1_000), ErrorCode.DAMAGED_DOCUMENT),
    "gif-of-4295-megapixels": (lambda: gif_claiming(65_535, 65_535), ErrorCode.IMAGE_TOO_LARGE),
    "bmp-of-1600-megapixels": (lambda: bmp_claiming(40_000, 40_000), ErrorCode.IMAGE_TOO_LARGE),
    "pdf-encrypted": (pdf_files.encrypted, ErrorCode.ENCRYPTED_DOCUMENT),
    "pdf-of-unknown-handler": (lambda: pdf_files.encrypted(b"Other"), ErrorCode.ENCRYPTED_DOCUMENT),
    "pdf-without-pages": (lambda: pdf_files.pages([]), ErrorCode.EMPTY_DOCUMENT),
    "pdf-of-noise": (lambda: b"%PDF-1.4\n" + bytes(range(256)) * 40, ErrorCode.DAMAGED_DOCUMENT),
    "pdf-jpeg-2000-bomb": (lambda: pdf_files.jpeg_2000_claiming(60_000), ErrorCode.IMAGE_TOO_LARGE),
}
