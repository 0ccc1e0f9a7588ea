"""PDFs written by hand, honest and not: only what a test needs of the format."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image

LETTER = (612, 792)


def pdf(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """A PDF of these objects, numbered from 1; the first is the catalogue."""
    out = bytearray(b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    start = len(out)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"xref\n0 %d\n0000000000 65535 f \n%b" % (len(objects) + 1, table)
    out += b"trailer\n<</Size %d/Root 1 0 R%b>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, start)
    return bytes(out)


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<<%b/Length %d>>\nstream\n%b\nendstream" % (entries, len(content), content)


def pages(
    contents: Sequence[tuple[bytes, bytes, bytes]],
    extra: Sequence[bytes] = (),
    trailer: bytes = b"",
    catalogue: bytes = b"",
) -> bytes:
    """A PDF with a page for each (entries, resources, content); `extra` objects are numbered from 3."""
    first = 3 + len(extra)
    objects = [b"<</Type/Catalog/Pages 2 0 R%b>>" % catalogue, b"", *extra]
    for number, (entries, resources, content) in enumerate(contents):
        objects.append(
            b"<</Type/Page/Parent 2 0 R/Resources<<%b>>/Contents %d 0 R%b>>"
            % (resources, first + 2 * number + 1, entries)
        )
        objects.append(stream(content))
    kids = b" ".join(b"%d 0 R" % (first + 2 * number) for number in range(len(contents)))
    objects[1] = b"<</Type/Pages/Kids[%b]/Count %d>>" % (kids, len(contents))
    return pdf(objects, trailer)


def image_object(data: bytes, width: int, height: int, filtered: bytes, channels: bytes = b"RGB") -> bytes:
    return stream(
        data,
        b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/Device%b/BitsPerComponent 8/Filter/%b"
        % (width, height, channels, filtered),
    )


def scans(images: Sequence[Image.Image], dpi: int = 200, rotate: int = 0) -> bytes:
    """A PDF as scanners make it: each page one JPEG, edge to edge."""
    objects, contents = [], []
    for number, image in enumerate(images):
        jpeg = io.BytesIO()
        image.save(jpeg, "JPEG", quality=95)
        objects.append(image_object(jpeg.getvalue(), *image.size, b"DCTDecode"))
        width, height = (side * 72 / dpi for side in image.size)
        contents.append(
            (
                b"/MediaBox[0 0 %g %g]/Rotate %d" % (width, height, rotate),
                b"/XObject<</I %d 0 R>>" % (3 + number),
                b"%g 0 0 %g 0 0 cm /I Do" % (width, height),
            )
        )
    return pages(contents, objects)


def one_image(content: bytes, width: int, height: int) -> bytes:
    """A page of 200 dpi with the image object `content`, edge to edge."""
    across, down = width * 72 / 200, height * 72 / 200
    draw = b"%g 0 0 %g 0 0 cm /I Do" % (across, down)
    return pages([(b"/MediaBox[0 0 %g %g]" % (across, down), b"/XObject<</I 3 0 R>>", draw)], [content])


def empty_page(box: bytes) -> bytes:
    return pages([(b"/MediaBox[%b]" % box, b"", b"")])


def endless_page_tree(levels: int) -> bytes:
    """No page, below nodes that each have the next one twice: `2 ** levels` of them for who counts the pages."""
    nodes = [b"<</Type/Pages/Kids[%d 0 R %d 0 R]>>" % (3 + level, 3 + level) for level in range(levels)]
    return pdf([b"<</Type/Catalog/Pages 2 0 R>>", *nodes, b"<</Type/Pages/Kids[]>>"])


def nested_forms(levels: int, times: int, good_pages: int = 0) -> bytes:
    """A page that draws a form that draws a form …, each `times` times: `times ** levels` in all; then good ones."""
    draw = b"/F Do " * times
    forms = []
    for level in range(levels):
        inner = b"/Resources<</XObject<</F %d 0 R>>>>" % (4 + level) if level + 1 < levels else b""
        content = draw if inner else b"0 0 9 9 re f "
        forms.append(stream(content, b"/Type/XObject/Subtype/Form/BBox[0 0 99 99]%b" % inner))
    bomb = (b"/MediaBox[0 0 99 99]", b"/XObject<</F 3 0 R>>", draw)
    return pages([bomb] + [(b"/MediaBox[0 0 99 99]", b"", b"")] * good_pages, forms)


def encrypted(handler: bytes = b"Standard") -> bytes:
    """A PDF that opens with a password that nobody has."""
    owner, user = b"0f" * 32, b"5a" * 32
    entry = b"<</Filter/%b/V 1/R 2/O<%b>/U<%b>/P -4>>" % (handler, owner, user)
    identity = b"/Encrypt 3 0 R/ID[<00112233445566778899aabbccddeeff><00112233445566778899aabbccddeeff>]"
    return pages([(b"/MediaBox[0 0 99 99]", b"", b"")], [entry], identity)


def jpeg_2000_claiming(side: int) -> bytes:
    """A second page that is good, after one with a JPEG 2000 whose own header claims more than the PDF says."""
    size = side.to_bytes(4)
    header = b"\xff\x4f\xff\x51\x00\x2f\x00\x00" + size + size + bytes(8) + size + size + bytes(8) + b"\x00\x03"
    image = image_object(header + b"\x07\x01\x01" * 3 + b"\xff\xd9", 100, 100, b"JPXDecode")
    bad = (b"/MediaBox[0 0 99 99]", b"/XObject<</I 3 0 R>>", b"99 0 0 99 0 0 cm /I Do")
    return pages([bad, (b"/MediaBox[0 0 99 99]", b"", b"")], [image])


def filled_form(value: str) -> bytes:
    """A form with a text field whose value shows through its appearance only."""
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
    shown = stream(
        b"/Tx BMC q BT /H 20 Tf 5 10 Td (%b) Tj ET Q EMC" % value.encode("ascii"),
        b"/Type/XObject/Subtype/Form/BBox[0 0 200 40]/Resources<</Font<</H 3 0 R>>>>",
    )
    field = (
        b"<</Type/Annot/Subtype/Widget/FT/Tx/T(name)/V(%b)/Rect[10 10 210 50]/F 4/AP<</N 4 0 R>>/DA(/H 20 Tf 0 g)>>"
        % value.encode("ascii")
    )
    return pages(
        [(b"/MediaBox[0 0 220 60]/Annots[5 0 R]", b"", b"")],
        [font, shown, field],
        catalogue=b"/AcroForm<</Fields[5 0 R]/DR<</Font<</H 3 0 R>>>>>>",
    )
