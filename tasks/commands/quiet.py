"""Logging of commands whose output is for a person or a pipe: warnings only, unless a level is asked for."""

from worker import logs
from worker.settings import Settings


def configure_logs(settings: Settings) -> None:
    """Log to standard error from the level that the settings give, or else from warnings on."""
    asked = "log_level" in settings.model_fields_set
    logs.configure(settings.log_level if asked else "warning", settings.log_format)
