import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

BLOCKED_IMPORT = """
import pkgutil, sys
for name in ("celery", "kombu", "redis", "numpy", "onnxruntime", "tokenizers", "structlog", "click", "rich"):
    sys.modules[name] = None
import schemas
for module in pkgutil.walk_packages(schemas.__path__, "schemas."):
    __import__(module.name)
foreign = {name.partition(".")[0] for name in sys.modules} & {"worker", "tasks", "pyarrow", "boto3"}
assert not foreign, foreign
"""


def test_the_contract_imports_with_pydantic_alone() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED_IMPORT], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
