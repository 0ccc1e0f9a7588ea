"""Fetches messages: drains while there is work and room, and waits without polling and without losing anything.

Waiting uses an inbox for each of the worker's lists: `BLMOVE list inbox` blocks on a connection of its own and moves
the message that wakes it into the inbox. A drain was sent along; it runs as the wait ends, and takes the message from
there. A pop would take it nowhere: killed in between, the job is gone. One message wakes one worker. When the worker is
full the waits are ended, so that an inbox never holds a message that an idle worker could run. It may be full for bulk
work and have room for what is more urgent; then it waits at the lists of that.
"""

from __future__ import annotations

import os
import selectors
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from schemas.names import Band
from worker import keys
from worker.quota import NOWHERE, Quota

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from worker.ledger import Drained, Ledger

log = structlog.get_logger(__name__)

PAUSE_S: Final = 1.0
WAIT_S: Final = 5.0  # of one BLMOVE
SILENCE_S: Final = 5.0  # beyond that: the connection is half open
UNBLOCKED_S: Final = 0.05
AT_WAKE: Final = 8  # messages that a drain behind a wait takes at most
FULL_S: Final = 0.05  # how often a full worker looks whether it has room again, if nobody tells it


class Fetcher:
    """The thread that fetches for one consumer.

    Args:
        ledger: drains; its client makes the connections that wait.
        queues: to fetch from.
        room: what the worker takes now.
        deliver: takes what was drained; called from this thread.
        on_broken: called once, from this thread, when the broker is lost; the thread ends.
        turned: called from this thread whenever it has drained, waited, or found no room.
    """

    def __init__(  # noqa: PLR0913 - what it asks and tells, one each
        self,
        ledger: Ledger,
        queues: Sequence[str],
        *,
        room: Callable[[], Quota],
        deliver: Callable[[list[Drained]], None],
        on_broken: Callable[[Exception], None],
        turned: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self.queues = tuple(queues)
        self._client = ledger.client
        self._room = room
        self._deliver = deliver
        self._on_broken = on_broken
        self._turned = turned
        self._waits: list[_Wait] = []
        self._closed = False
        self._reach = int(Band.BULK)
        self._wakeup, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._wakeup, False)
        self._ended = False
        self._nudging = threading.Lock()  # a late one would go to whoever has the pipe's number next: a socket
        self._thread = threading.Thread(target=self._run, name="fetcher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def room_changed(self) -> None:
        """Look again if there was no room for some band, and now there is. Never blocks."""
        if self._has_more_room():
            self.nudge()

    def nudge(self) -> None:
        """Look for room again at once. Never blocks."""
        with self._nudging, suppress(BlockingIOError):  # there are nudges enough
            if not self._ended:
                os.write(self._waker, b"\0")

    def close(self) -> None:
        """Stop fetching; what was drained before is delivered before this returns."""
        self._closed = True
        self.nudge()
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._open_waits()
            while not self._closed:
                try:
                    self._step()
                except ResponseError as exc:  # READONLY, OOM, LOADING: the server is there, and will mend
                    log.warning("fetcher.paused", error=type(exc).__name__, pause_s=PAUSE_S)
                    self._sleep(PAUSE_S)
        except Exception as exc:
            if not isinstance(exc, RedisError | OSError):
                log.exception("fetcher.died")
            if not self._closed:
                self._on_broken(RedisConnectionError(f"the fetcher ended: {type(exc).__name__}"))
        finally:
            for wait in self._waits:
                wait.close()
            with self._nudging:
                self._ended = True
                os.close(self._wakeup)
                os.close(self._waker)

    def _step(self) -> None:
        self._reach = NOWHERE  # before looking, so that no change is missed
        room = self._room()
        self._reach = room.reach
        self._end_waits(room.reach)
        if room.reach == NOWHERE:
            self._turned()
            self._sleep(FULL_S)
            return
        drained = self._ledger.drain(room.messages, self.queues, room.band)
        if drained:
            self._deliver(drained)
        self._turned()
        left = room.messages - len(drained)
        if left > 0:
            self._wait(Quota(min(AT_WAKE, left), room.band))

    def _has_more_room(self) -> bool:
        return self._reach < Band.BULK and self._room().reach > self._reach

    def _open_waits(self) -> None:
        for list_key, inbox in self._ledger.open_inboxes(self.queues).items():
            self._waits.append(_Wait(self._client.connection_pool, list_key, inbox))

    def _begin(self, wait: _Wait, room: Quota) -> None:
        if not wait.waiting:
            wait.begin(*self._ledger.drain_if_woken(room.messages, self.queues, room.band), room)

    def _wait(self, room: Quota) -> None:
        """Deliver what comes, as long as it is less than there is room for, and that stays so; or until a nudge."""
        lists = {list_key for queue in self.queues for list_key in keys.lists(queue, room.band)}
        wanted = [wait for wait in self._waits if wait.list_key in lists]
        longest_s = WAIT_S + SILENCE_S if room.band == Band.BULK else FULL_S
        with selectors.PollSelector() as selector:
            selector.register(self._wakeup, selectors.EVENT_READ)
            for wait in wanted:
                self._begin(wait, room)
                selector.register(wait.socket, selectors.EVENT_READ, wait)
            while not self._closed:
                ready = selector.select(min(longest_s, *(wait.patience_s() for wait in wanted)))
                self._turned()
                waits: list[_Wait] = [key.data for key, _ in ready if key.data is not None]
                was_all = [self._receive(wait, room) for wait in waits]
                if not all(was_all) or len(waits) < len(ready) or self._has_more_room():
                    self._drain_nudges()
                    return
                for wait in wanted:
                    self._begin(wait, room)

    def _receive(self, wait: _Wait, room: Quota) -> bool:
        """Deliver what a wait that has ended brought; say whether that was all, and there is room as before."""
        moved, drained = wait.read()
        if drained:
            self._deliver(drained)
        return not moved or (0 < len(drained) < wait.room.messages and self._room().reach == room.reach)

    def _end_waits(self, reach: int) -> None:
        """Unblock the waits that go further; a message that one moved meanwhile goes back, for whoever has room."""
        while waiting := [wait for wait in self._waits if wait.waiting and wait.room.reach > reach]:
            with self._client.pipeline(transaction=False) as pipe:
                for wait in waiting:
                    pipe.client_unblock(wait.client_id)
                pipe.execute()
            with selectors.PollSelector() as selector:
                for wait in waiting:
                    selector.register(wait.socket, selectors.EVENT_READ, wait)
                # One that the server had not begun yet was not unblocked: ask again.
                ready = selector.select(min(UNBLOCKED_S, *(wait.patience_s() for wait in waiting)))
            for key, _ in ready:
                moved, drained = key.data.read()
                if drained:
                    self._ledger.give_back(one.held for one in reversed(drained))
                elif moved:
                    key.data.put_back(self._client)

    def _sleep(self, seconds: float) -> None:
        with selectors.PollSelector() as selector:
            selector.register(self._wakeup, selectors.EVENT_READ)
            selector.select(seconds)
        self._drain_nudges()

    def _drain_nudges(self) -> None:
        try:
            while os.read(self._wakeup, 4096):
                pass
        except BlockingIOError:
            pass


class _Wait:
    """One `BLMOVE`, and the drain behind it, on a connection of its own."""

    def __init__(self, pool: Any, list_key: str, inbox: str) -> None:  # noqa: ANN401 - any of redis-py's pools
        self._pool = pool
        self.list_key = list_key
        self._inbox = inbox
        self._connection = pool.get_connection()
        self._connection.send_command("CLIENT", "ID")
        self.client_id = int(self._connection.read_response())
        self.waiting = False
        self.room = Quota(0)
        self._began_s = 0.0
        self._drained: Callable[[Any], list[Drained]] = list

    @property
    def socket(self) -> Any:  # noqa: ANN401 - a socket, or what wraps one
        """The socket to select on."""
        return self._connection._sock  # noqa: SLF001 - redis-py has no public way to wait on several connections

    def begin(self, drain: Sequence[Any], drained: Callable[[Any], list[Drained]], room: Quota) -> None:
        """Send the commands.

        Args:
            drain: what the server runs when the wait ends.
            drained: reads its answer.
            room: for how much that is.
        """
        wait = ("BLMOVE", self.list_key, self._inbox, "RIGHT", "LEFT", WAIT_S)
        self._connection.send_packed_command(self._connection.pack_commands([wait, drain]))
        self._drained = drained
        self.room = room
        self.waiting = True
        self._began_s = monotonic()

    def patience_s(self) -> float:
        """How much longer to wait for the answer.

        Raises:
            ConnectionError: it is overdue.
        """
        left_s = self._began_s + WAIT_S + SILENCE_S - monotonic()
        if left_s <= 0:
            raise RedisConnectionError("no answer to BLMOVE: the connection is half open")
        return left_s

    def read(self) -> tuple[bool, list[Drained]]:
        """Read the answers; return whether a message came, and what was drained, which may be nothing of it.

        Raises:
            ResponseError: the wait was refused: READONLY, OOM.
        """
        self.waiting = False
        moved, drained = self._answer(), self._answer()
        if isinstance(drained, ResponseError):  # the server has forgotten the script, for one
            drained = ()
        if isinstance(moved, ResponseError) and not drained:
            raise moved
        return moved is not None, self._drained(drained)

    def _answer(self) -> Any:  # noqa: ANN401 - as the command says
        try:
            return self._connection.read_response()
        except ResponseError as exc:
            return exc

    def put_back(self, client: Any) -> None:  # noqa: ANN401 - any of redis-py's clients
        """Return the message that came to the list that it came from."""
        client.lmove(self._inbox, self.list_key, "RIGHT", "RIGHT")

    def close(self) -> None:
        """Close the connection; the server forgets the wait."""
        self._connection.disconnect()
        self._pool.release(self._connection)
