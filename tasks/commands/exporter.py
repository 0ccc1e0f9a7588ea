"""`batchmill exporter`: publishes how full the queues are, for Prometheus and for an autoscaler."""

import signal
import threading

import click
import structlog

from tasks.commands.failures import reported
from worker import logs
from worker.errors import ConfigError
from worker.ops.broker import connect
from worker.ops.exporter import Exporter
from worker.ops.http import Server
from worker.settings import load

log = structlog.get_logger(__name__)


@click.command()
@click.option("--port", "http_port", type=int, help="Port to serve on; wins over BATCHMILL_HTTP_PORT.")
@reported
def exporter(*, http_port: int | None) -> None:
    """Serve /metrics, /live, /ready and /queues/NAME until SIGTERM.

    It looks at the queues of BATCHMILL_QUEUES, and at those that live workers serve, every five seconds. It needs no
    worker and no model, keeps no state, and may run more than once.
    """
    settings = load(http_port=http_port)
    logs.configure(settings.log_level, settings.log_format)
    if not settings.http_port:
        raise ConfigError("the exporter needs a port: set BATCHMILL_HTTP_PORT, or give --port")
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    with connect(settings.broker_url, decode_responses=False) as client:
        looks = Exporter(client, settings.queues, dict(settings.default_rates), settings.lease_s)
        with Server(settings.http_host, settings.http_port, looks.respond) as server, looks.looking():
            log.info("exporter.started", broker=settings.safe_broker_url, queues=settings.queues, port=server.port)
            told.wait()
