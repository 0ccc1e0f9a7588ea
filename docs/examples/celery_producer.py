"""Classify tickets from any service that has `celery[redis]`; nothing of batchmill is needed.

    python celery_producer.py redis://localhost:6379/0 "I was charged twice in May"

Prints the result as JSON. Ends with exit code 1 and the reason if the message was refused.
"""  # noqa: INP001 - a script to copy, not a package

import json
import sys
import time

from celery import Celery
from celery.result import AsyncResult


def enqueue(app: Celery, tickets: list[dict[str, str]], priority: int = 0) -> AsyncResult:
    """Send the tickets; priority 0 to 2 is interactive, 3 to 5 normal, 6 to 9 bulk."""
    return app.send_task(
        "classify.tickets",
        kwargs={"tickets": tickets},
        queue="classify",
        priority=priority,
        headers={"enqueued_at": time.time()},
        kwargsrepr="(tickets)",  # Celery would put the first texts into a header of the message
    )


def main(url: str, texts: list[str]) -> int:
    """Send the texts as one message, wait, and print what came back."""
    app = Celery(broker=url, backend=url)
    handle = enqueue(app, [{"id": str(number), "text": text} for number, text in enumerate(texts, 1)])
    result = handle.get(timeout=60, propagate=False)
    if handle.failed():
        sys.exit(f"{type(result).__name__}: {result}")  # MessageError: unknown_field: tickets[0].txt: …
    json.dump(result, sys.stdout, ensure_ascii=False, indent=2)
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
