"""The application for `celery -A tasks …`, configured by the environment: the one module that reads it at import."""

from tasks.app import create_app
from worker.settings import load

app = create_app(load())
