from pathlib import Path
from socket import gethostname

import pytest
from pydantic import ValidationError

from worker.errors import ConfigError
from worker.options import options_table
from worker.settings import Settings, env_name, load, mask_url

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in Settings.model_fields:
        monkeypatch.delenv(env_name(field), raising=False)


def test_defaults_need_no_environment() -> None:
    settings = load()
    assert settings.broker_url == "redis://localhost:6379/0"
    assert settings.queues == ("classify", "bulk")
    assert settings.providers == ("CPUExecutionProvider",)
    assert settings.max_message_bytes == 4 * 1024 * 1024


def test_variables_are_parsed_to_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMILL_QUEUES", "classify, urgent")
    monkeypatch.setenv("BATCHMILL_RUNNERS", "3")
    monkeypatch.setenv("BATCHMILL_MAX_QUEUE_DELAY_S", "0.25")
    monkeypatch.setenv("BATCHMILL_CACHE_DIR", "~/models")
    settings = load()
    assert settings.queues == ("classify", "urgent")
    assert settings.runners == 3
    assert settings.max_queue_delay_s == 0.25
    assert settings.cache_dir == Path.home() / "models"


def test_rates_are_parsed_by_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dict(load().default_rates) == {"classify": 50.0, "ocr": 0.5, "bulk": 0.02, "bulk-ocr": 0.02}
    monkeypatch.setenv("BATCHMILL_DEFAULT_RATES", "classify=120, urgent = 3.5,")
    assert dict(load().default_rates) == {"classify": 120.0, "urgent": 3.5}


def test_a_flag_wins_over_the_environment_and_none_means_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMILL_RUNNERS", "3")
    monkeypatch.setenv("BATCHMILL_MODEL", "tickets")
    settings = load(runners=1, model=None)
    assert (settings.runners, settings.model) == (1, "tickets")


def test_an_empty_variable_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMILL_RUNNERS", "")
    assert load().runners == 0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BATCHMILL_RUNNERS", "many"),
        ("BATCHMILL_RUNNERS", "-1"),
        ("BATCHMILL_MAX_BATCH_SIZE", "0"),
        ("BATCHMILL_DRAIN_TIMEOUT_S", "inf"),
        ("BATCHMILL_AGEING_S", "nan"),
        ("BATCHMILL_LOG_LEVEL", "loud"),
        ("BATCHMILL_QUEUES", ","),
        ("BATCHMILL_BROKER_URL", "amqp://guest@localhost"),
        ("BATCHMILL_BROKER_URL", "redis://[::1"),
        ("BATCHMILL_HTTP_PORT", "70000"),
        ("BATCHMILL_DEFAULT_RATES", "classify"),
        ("BATCHMILL_DEFAULT_RATES", "classify=fast"),
        ("BATCHMILL_DEFAULT_RATES", "classify=0"),
        ("BATCHMILL_DEFAULT_RATES", "classify=inf"),
    ],
)
def test_a_value_out_of_range_is_refused_by_the_variables_name(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=variable):
        load()


def test_a_misspelt_variable_is_refused_with_the_nearest_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMILL_MAX_BATCHSIZE", "8")
    with pytest.raises(ConfigError, match="did you mean BATCHMILL_MAX_BATCH_SIZE"):
        load()


@pytest.mark.parametrize(
    "variable",
    [
        "BATCHMILL_SERVICE_HOST",
        "BATCHMILL_PORT",
        "BATCHMILL_PORT_6379_TCP_ADDR",
        "BATCHMILL_VALKEY_SERVICE_PORT_REDIS",
    ],
)
def test_variables_that_kubernetes_adds_for_services_are_no_mistake(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "tcp://10.0.0.1:6379")
    assert load() == Settings()


def test_neither_errors_nor_repr_show_the_brokers_password(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "secret" not in repr(load(broker_url="redis://:secret@db:6379/0"))
    monkeypatch.setenv("BATCHMILL_BROKER_URL", "http://u:secret@db")
    with pytest.raises(ConfigError) as caught:
        load()
    assert "secret" not in f"{caught.value}{caught.value.__cause__}"


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("rediss://user:p@ss@db:6380/2?ssl_keyfile=/k", "rediss://***@db:6380/2?***"),
        ("redis://:pw@db", "redis://***@db"),
    ],
)
def test_a_masked_address_keeps_host_and_database_only(url: str, masked: str) -> None:
    assert mask_url(url) == masked


def test_settings_are_frozen() -> None:
    settings = load()
    with pytest.raises(ValidationError):
        settings.runners = 2


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (None, f"batchmill@{gethostname()}"),
        ("pod-1", f"pod-1@{gethostname()}"),
        ("pod-1@%h", f"pod-1@{gethostname()}"),
        ("%n@%h", f"{gethostname().partition('.')[0]}@{gethostname()}"),
        ("pod-1@node-7", "pod-1@node-7"),
    ],
)
def test_a_worker_name_is_expanded_as_celery_does(given: str | None, named: str) -> None:
    assert load(worker_name=given).worker_name == named


def test_a_worker_name_that_celery_could_not_expand_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="BATCHMILL_WORKER_NAME: after a %"):
        load(worker_name="pod%x")


def test_every_option_is_documented_and_the_page_matches_the_code() -> None:
    table = options_table()
    assert all(f"`{env_name(field)}`" in table for field in Settings.model_fields)
    assert "None" not in table
    assert table in DOCS.read_text(encoding="utf-8"), "take the table from `batchmill options`"
