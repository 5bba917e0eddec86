"""A captured function with feeds: their elements become inputs and outputs of its program."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from openipu.runtime import stoppable
from openipu.tensorflow.capture.function import Captured
from openipu.tensorflow.configuration import synthetic
from openipu.tensorflow.feeds import calls, queues
from openipu.tensorflow.feeds.infeed import IPUInfeedQueue
from openipu.tensorflow.feeds.live import Live, LiveInfeed, LiveOutfeed
from openipu.tensorflow.feeds.outfeed import IPUOutfeedQueue
from openipu.tensorflow.feeds.reader import sizes

# Elements of one execution that are more than this in all do not travel as one block.
_LARGEST = 2**30


@attrs.frozen(eq=False)
class Use:
    """What a program does with one queue.

    Attributes:
      queue: the queue.
      steps: elements of one execution for each replica; None when only the execution tells.
      live: the feed that calls the host, when `steps` is None.
    """

    queue: IPUInfeedQueue | IPUOutfeedQueue
    steps: int | None
    live: Live | None = None

    @property
    def slots(self) -> int:
        """Places in the block of one execution: an outfeed of the last value needs only one."""
        assert self.steps is not None
        return min(self.steps, 1) if isinstance(self.queue, IPUOutfeedQueue) and self.queue.last else self.steps

    @property
    def specs(self) -> list[tf.TensorSpec]:
        """Types of the blocks."""
        return [tf.TensorSpec((self.slots, *s.shape), s.dtype) for s in self.queue.flat_specs]


class FedFunction:
    """A captured function whose infeeds are arguments and whose outfeeds are results.

    It has the attributes of `Captured` that programs are put together from.
    """

    def __init__(self, captured: Captured, replicas: int) -> None:
        self._captured = captured
        self._replicas = replicas
        cursors = {id(q.cursor): q for q in _queues_of(captured)}
        self._cursors = cursors
        counts = captured.lowered.occurrences("openipu.infeed_advance", "feed")
        self.infeeds = tuple(self._use(name, steps) for name, steps in counts.items())
        if any(places > 1 for places in captured.lowered.places("openipu.outfeed", "feed").values()):
            raise ValueError("An outfeed can only be enqueued once.")
        counts = captured.lowered.occurrences("openipu.outfeed", "feed")
        self.outfeeds = tuple(self._use(name, steps) for name, steps in counts.items())
        self.name = captured.name
        self.structure = captured.structure
        self.graph = captured.graph
        # Blocks of infeeds hold elements of many steps, and are not looked at.
        self.limits = (*captured.limits, *(None for _ in self.feed_specs))
        self.constants = tuple(
            np.int32(0) if v is not None and id(v) in cursors else c
            for v, c in zip(captured.variables, captured.constants, strict=True)
        )
        self.variables = tuple(None if v is not None and id(v) in cursors else v for v in captured.variables)
        self.arguments = captured.arguments + len(self.feed_specs)
        self.results = captured.results + sum(len(self._result_specs(u)) for u in self.uses)

    @property
    def uses(self) -> tuple[Use, ...]:
        """All feeds."""
        return (*self.infeeds, *self.outfeeds)

    @property
    def is_live(self) -> bool:
        """Whether the program calls the host while it runs."""
        return any(use.live is not None for use in self.uses)

    @property
    def feed_specs(self) -> list[tf.TensorSpec]:
        """Types of the arguments that come after the function's own."""
        return [spec for use in self.infeeds if use.live is None for spec in use.specs]

    @property
    def lowered(self) -> Any:
        """The lowering of the function."""
        return self._captured.lowered

    @property
    def written(self) -> list[tf.Variable]:
        """The variables this function assigns."""
        return [v for v in self._captured.written if id(v) not in self._cursors]

    @property
    def used(self) -> list[tf.Variable]:
        """The variables this function reads or assigns."""
        return [v for v in self._captured.used if id(v) not in self._cursors]

    def __call__(
        self,
        arguments: Sequence[jax.Array],
        values: dict[int, jax.Array],
        key: jax.Array | None = None,
        within: Any = None,
    ) -> tuple[list[jax.Array], dict[int, jax.Array]]:
        """Evaluate on arrays; the results are the function's own, then those of its feeds."""
        own = self._captured.arguments
        blocks = iter(arguments[own:])
        sources: dict[str, Any] = {}
        held: dict[str, Any] = {}
        for use in self.uses:
            if use.live is not None:
                sources[use.queue.name] = use.live.source
            elif isinstance(use.queue, IPUInfeedQueue):
                sources[use.queue.name] = [next(blocks) for _ in use.specs]
            else:
                sources[use.queue.name] = ()
                held[use.queue.name] = [jnp.zeros(s.shape, s.dtype.as_numpy_dtype) for s in use.specs]
        zeros = {position: jnp.zeros((), jnp.int32) for position in self._cursors}
        with calls.lowering(sources):
            results, written = self._captured(arguments[:own], {**values, **zeros}, key, within, held)
        for use in self.uses:
            if use.live is not None:
                results.append(written[id(use.queue.cursor)])
            elif isinstance(use.queue, IPUOutfeedQueue):
                results += held[use.queue.name]
        return results, {v: value for v, value in written.items() if v not in self._cursors}

    def feeds(self) -> list[np.ndarray]:
        """The blocks of one execution, [replica, step, ...] each, without the first axis for one replica."""
        blocks: list[np.ndarray] = []
        for use in self.infeeds:
            if use.live is None:
                assert isinstance(use.queue, IPUInfeedQueue)
                if synthetic.instead_of("infeed"):
                    given = [np.zeros((self._replicas, *sizes(s)), s.dtype.as_numpy_dtype) for s in use.specs]
                else:
                    given = use.queue.reader(self._replicas).block(use.slots, self._replicas)
                blocks += [block[0] if self._replicas == 1 else block for block in given]
        return blocks

    def run(self, execute: Callable[[Sequence[np.ndarray]], list[Any]]) -> list[Any]:
        """One execution, fed from its infeeds; what came out is handed to its outfeeds.

        If a feed ends while the program runs, the variables are as they were before.

        Args:
          execute: runs the program with these blocks as its last inputs, and returns all results, with the replica axis
            first if there are several.

        Returns:
          The results of the function itself.
        """
        if not self.is_live:
            results = execute(self.feeds())
        else:
            results = self._run_live(execute)
        self._finish(results[self._captured.results :])
        return results[: self._captured.results]

    def _run_live(self, execute: Callable[[Sequence[np.ndarray]], list[Any]]) -> list[Any]:
        live = [use.live for use in self.uses if use.live is not None]
        for feed in live:
            feed.begin()

        def stop() -> None:
            for feed in live:
                feed.stop()

        try:
            with stoppable(stop):
                return execute(self.feeds())
        except Exception as error:
            cause = next((feed.error for feed in live if feed.error is not None), error)
            raise cause from None

    def _finish(self, results: Sequence[Any]) -> None:
        given = iter(results)
        for use in self.uses:
            mine = [np.asarray(next(given)) for _ in self._result_specs(use)]
            if use.live is not None:
                use.live.finish(int(mine[0].max()))
            elif isinstance(use.queue, IPUOutfeedQueue) and not synthetic.instead_of("outfeed"):
                use.queue.writer.put([np.swapaxes(m, 0, 1) for m in mine] if self._replicas > 1 else mine)
                use.queue.ran = True

    def _result_specs(self, use: Use) -> list[tf.TensorSpec]:
        if use.live is not None:
            return [tf.TensorSpec((), tf.int32)]
        return use.specs if isinstance(use.queue, IPUOutfeedQueue) else []

    def _use(self, name: str, steps: int | None) -> Use:
        queue = queues.find(name)
        queue.claim(self._replicas)
        use = Use(queue, steps)
        size = None if steps is None else self._replicas * sum(s.dtype.size * math.prod(sizes(s)) for s in use.specs)
        if size is not None and size <= _LARGEST:
            return use
        live = LiveInfeed if isinstance(queue, IPUInfeedQueue) else LiveOutfeed
        return Use(queue, None, live(queue, self._replicas))


def _queues_of(captured: Captured) -> list[Any]:
    """The queues whose cursors a function uses."""
    return [v._openipu_queue() for v in captured.used if hasattr(v, "_openipu_queue")]


def has_feeds(captured: Captured) -> bool:
    """Whether a function takes from or gives to a queue."""
    return bool(_queues_of(captured))
