"""A letter as a scanner sees it: drawn by the project, a little askew, grey and noisy, saved as JPEG."""

from __future__ import annotations

import cv2
import numpy as np

WIDTH = 900
MARGIN = 40
SPACING = 44
LETTER_PX = 24
SLANT_DEGREES = 0.6

GERMAN_TICKET = (
    "Betreff: Rückzahlung für Bestellung 4711",
    "Sehr geehrte Damen und Herren,",
    "die Stühle habe ich am 3. März zurückgeschickt, weil die Größe",
    "nicht passt. Bitte überweisen Sie mir die 249,90 € zurück,",
    "das Geld ist noch nicht auf meinem Konto.",
    "Mit freundlichen Grüßen, Jörg Äußerer, Öhringer Straße 5",
)


def scan(lines: tuple[str, ...]) -> bytes:
    """A page with these lines."""
    height = 2 * MARGIN + SPACING * len(lines)
    paper = np.full((height, WIDTH, 3), 255, np.uint8)
    font = cv2.FontFace("sans")
    for number, line in enumerate(lines):
        cv2.putText(paper, line, (MARGIN, MARGIN + SPACING * (number + 1) - 14), (20, 20, 20), font, LETTER_PX, 400)
    turn = cv2.getRotationMatrix2D((WIDTH / 2, height / 2), SLANT_DEGREES, 1.0)
    askew = cv2.warpAffine(paper, turn, (WIDTH, height), flags=cv2.INTER_CUBIC, borderValue=(255.0, 255.0, 255.0))
    noise = np.random.default_rng(4711).normal(-12, 6, askew.shape)
    seen = np.clip(cv2.GaussianBlur(askew, (0, 0), 0.6).astype(np.float32) + noise, 0, 255).astype(np.uint8)
    return bytes(cv2.imencode(".jpg", seen, [cv2.IMWRITE_JPEG_QUALITY, 85])[1])
