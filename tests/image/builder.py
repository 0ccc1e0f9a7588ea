"""Images without a Docker engine: buildah in its chroot form, over a Debian that debootstrap makes.

Everything that is built lies in a store of its own, which vanishes with the block that uses it. Needs root, because
debootstrap and chroot do, and Debian's packages. It knows nothing of what is in an image of ours.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, Self

import pytest

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = ("buildah", "debootstrap", "unshare")
RELEASE: Final = "bookworm"
PACKAGES: Final = "ca-certificates,python3,python3-venv"
# What this machine needs to reach its package registries; an image's base elsewhere brings its own.
MACHINE_FILES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")


class Builder:
    """A store for images and containers.

    Args:
        directory: keeps it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._options = ["--root", str(directory / "root"), "--runroot", str(directory / "run")]

    def __enter__(self) -> Self:
        provide_programs()
        return self

    def __exit__(self, *_: object) -> None:
        self._buildah("rm", "--all")
        shutil.rmtree(self._directory, ignore_errors=True)

    def make_base(self, name: str) -> None:
        """Make an image that has Debian, Python and nothing else."""
        container = self._buildah("from", "scratch")
        root = Path(self._buildah("mount", container))
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root))
        for path in map(Path, MACHINE_FILES):
            if path.exists():
                shutil.copy(path, root / path.relative_to("/"))
        for path in (root / "var/cache/apt/archives").glob("*.deb"):
            path.unlink()
        self._buildah("umount", container)
        self._buildah("commit", "--quiet", "--format", "docker", "--rm", container, name)

    def build(self, name: str, target: str, **arguments: str) -> None:
        """Build a target of our Dockerfile."""
        options = [f"--build-arg={argument}={value}" for argument, value in arguments.items()]
        self._buildah(
            *("build", "--isolation", "chroot", "--format", "docker", "--layers", "--target", target),
            *("--file", str(ROOT / "docker" / "Dockerfile"), "--tag", name, *options, str(ROOT)),
        )

    def config(self, name: str) -> dict[str, Any]:
        """Return an image's configuration: User, Env, Entrypoint, Labels, …"""
        config: dict[str, Any] = json.loads(self._buildah("inspect", "--type", "image", name))["Docker"]["config"]
        return config

    def mount(self, name: str) -> Path:
        """Return where the files of an image lie."""
        return Path(self._buildah("mount", self._buildah("from", "--pull-never", name)))

    def _buildah(self, *arguments: str) -> str:
        return run("buildah", *self._options, *arguments)


def provide_programs() -> None:
    """Install what is missing, as far as one can; else end the test with what to do."""
    if os.getuid() != 0:
        pytest.fail("an image is built and entered by root: sudo make image-check")
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        if shutil.which("apt-get") is None:
            pytest.fail(f"install {', '.join(missing)}, then try again")
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "buildah", "debootstrap", "util-linux")


def read_only(root: Path, config: dict[str, Any], log: Path, **settings: str) -> subprocess.Popen[bytes]:
    """Start an image's own command as its own user, on a root that cannot be written, with an empty /tmp.

    What it inherits is the network and nothing else; as in a container its first process is number 1, and what it
    started ends with it. The process that is returned ends as the first one does: `first_process` finds that.

    Args:
        root: the image's files.
        config: of the image.
        log: takes what it prints.
        settings: more variables, by their names.
    """
    enter = (
        'root="$1" && user="$2" && shift 2 '
        '&& mount --bind "$root" "$root" && mount -o remount,bind,ro "$root" && mount -t tmpfs tmpfs "$root/tmp" '
        '&& mount -t proc proc "$root/proc" && mount --bind /dev "$root/dev" '
        '&& exec chroot --userspec="$user" "$root" "$@"'
    )
    variables = [*config["Env"], *(f"{name}={value}" for name, value in settings.items())]
    command = ["env", "-i", "-C", config["WorkingDir"], *variables, *config["Entrypoint"], *config["Cmd"]]
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    enter_by = [*namespaces, "/bin/sh", "-c", enter, "enter", str(root), config["User"], *command]
    with log.open("ab") as output:
        return subprocess.Popen(enter_by, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def first_process(entered: subprocess.Popen[bytes]) -> int:
    """Return the number that an image's first process has outside."""
    children = Path(f"/proc/{entered.pid}/task/{entered.pid}/children").read_text().split()
    return int(children[0])


def run(*command: str) -> str:
    """Return what a command prints; show all that it said where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command[:8])} … ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout.strip()
