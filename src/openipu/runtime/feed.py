"""Host data on its way to the device, fetched in the background so that the device never waits for Python."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_END = object()


@contextlib.contextmanager
def prefetch(items: Iterable[Any], place: Callable[[Any], Any], depth: int = 2) -> Iterator[Iterator[Any]]:
    """Iterate over `items` while a thread fetches and places the next ones.

    Args:
      items: host data, one item an execution.
      place: puts an item on the device; called in the thread.
      depth: how many items may wait.

    Yields:
      An iterator over the placed items; an exception of the thread is raised where its item would have come.
    """
    waiting: queue.Queue = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def offer(entry: tuple) -> bool:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                waiting.put(entry, timeout=0.1)
                return True
        return False

    def fetch() -> None:
        try:
            for item in items:
                if not offer((place(item), None)):
                    return
            offer((_END, None))
        except BaseException as error:
            offer((_END, error))

    def drain() -> Iterator[Any]:
        while True:
            item, error = waiting.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item

    thread = threading.Thread(target=fetch, name="openipu-feed", daemon=True)
    thread.start()
    try:
        yield drain()
    finally:
        stop.set()
        thread.join()
