"""One URL for every way to a Redis database: what each library is told, and what is refused."""

from __future__ import annotations

import re

import pytest

from worker.address import parse
from worker.errors import ConfigError
from worker.settings import load, mask_url


@pytest.mark.parametrize(
    ("url", "celery_url"),
    [
        ("redis://localhost", "redis://localhost:6379/0"),
        ("redis://u:p%40ss@h:7000/3", "redis://u:p%40ss@h:7000/3"),
        ("redis://:pw@[::1]/1", "redis://:pw@[::1]:6379/1"),
        ("rediss://h", "rediss://h:6379/0?ssl_cert_reqs=CERT_REQUIRED"),
        (
            "rediss://h/1?ssl_ca_certs=/etc/ca.pem&ssl_cert_reqs=CERT_OPTIONAL",
            "rediss://h:6379/1?ssl_ca_certs=%2Fetc%2Fca.pem&ssl_cert_reqs=CERT_OPTIONAL",
        ),
        ("redis+socket:///run/valkey.sock?virtual_host=2", "redis+socket:///run/valkey.sock?virtual_host=2"),
        ("redis+socket://u:p@/run/valkey.sock", "redis+socket://u:p@/run/valkey.sock?virtual_host=0"),
        (
            "sentinel://:a;b@s1;sentinel://s2:5000/4?master_name=main",
            "sentinel://:a%3Bb@s1:26379/4;sentinel://:a%3Bb@s2:5000/4",
        ),
    ],
)
def test_celery_is_told_everything_that_it_would_guess_wrong(url: str, celery_url: str) -> None:
    assert parse(url).celery_url == celery_url


def test_only_sentinel_needs_options_beside_the_url() -> None:
    assert parse("sentinel://s1?master_name=main").transport_options == {"master_name": "main"}
    assert parse("rediss://h?ssl_ca_certs=/ca").transport_options == {}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqp://u:sesame@h", "redis://, rediss://, redis+socket://, sentinel://"),
        ("redis://u:sesame@h/0?global_keyprefix=x", "global_keyprefix is not supported"),
        ("redis://u:sesame@h/0?ssl_ca_certs=/ca", "not an option of a redis:// address"),
        ("redis://u:sesame@h/jobs", "must be a number"),
        ("redis://u:sesame/x@h:6379/0", "escape special characters"),
        ("redis://u:sesame@h:port/0", "escape special characters"),
        ("rediss://u:sesame@h?ssl_cert_reqs=maybe", "required, optional or none"),
        ("redis+socket://u:sesame@run/valkey.sock", "three slashes"),
        ("sentinel://u:sesame@s1", "master_name"),
    ],
)
def test_what_nobody_would_honour_is_refused_without_showing_credentials(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)) as refused:
        load(broker_url=url)
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sentinel://u:sesame@s1:1;sentinel://u:sesame@s2:2/0?master_name=m", "sentinel://***@s1:1;sentinel://***@s2:2/0?***"),
        ("redis://u:ses;ame@h/0", "redis://***@h/0"),
        ("redis+socket:///run/valkey.sock", "redis+socket:///run/valkey.sock"),
    ],
)  # fmt: skip
def test_credentials_are_masked_in_every_part(url: str, shown: str) -> None:
    assert mask_url(url) == shown
