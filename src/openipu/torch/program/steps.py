"""What a program of a captured module computes: a step of inference or of training, and the update after it."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from torch.fx import Node

from openipu.program import marks
from openipu.torch.aten.evaluate import Around
from openipu.torch.capture import naming
from openipu.torch.capture.grouping import Grouped
from openipu.torch.capture.module import Captured, Evaluation
from openipu.torch.ops.loss import observing
from openipu.torch.optim import updates
from openipu.torch.optim.updates import HYPER, Training
from openipu.torch.program import anchoring
from openipu.torch.program.anchoring import LOSS, LOSS_SCALE, SHORT, gradient_name, updated_name

Arrays = Sequence[jax.Array]


@attrs.frozen(eq=False)
class Steps:
    """The functions of a program; values arrive in the order of `shared` and `local`.

    Attributes:
      captured: one forward pass.
      training: the loss and its optimizer; None for inference.
      constants: parameters and buffers that are compiled in, by name.
      shared: names of parameters, buffers and optimizer state that only an update writes.
      local: names of those that a forward pass writes.
      groups: parameters of which groups of replicas have a slice each, by name.
      anchors: names of tensors inside that become outputs of their own.
      nodes: operations whose values may be among them, by name.
      around: marks of pipeline parts.
    """

    captured: Captured
    training: Training | None
    constants: Mapping[str, np.ndarray]
    shared: Sequence[str]
    local: Sequence[str]
    groups: Mapping[str, Grouped]
    anchors: Sequence[str]
    nodes: Mapping[str, Node]
    around: Around | None

    @property
    def trained(self) -> list[str]:
        """The names of the parameters that are trained."""
        return list(self.training.rows) if self.training is not None else []

    def infer(
        self, shared: Arrays, local: Arrays, batch: Arrays, key: jax.Array
    ) -> tuple[list[jax.Array], list[jax.Array], list[jax.Array]]:
        """A step of inference: no gradients, new local values, outputs."""
        current = self._named(shared, local)
        new, outputs, watched = self._results(self._forward(current, batch, key))
        return [], new, [*outputs, *anchoring.gathered(self.anchors, current, batch, watched)]

    def train(
        self, shared: Arrays, local: Arrays, batch: Arrays, key: jax.Array
    ) -> tuple[list[jax.Array], list[jax.Array], list[jax.Array]]:
        """A step of training: gradients, new local values, outputs."""
        training, trained = self.training, self.trained
        assert training is not None
        start, current = training.loss, self._named(shared, local)
        scale = updates.loss_scale(training, current)

        def scaled_loss(weights: list[jax.Array]) -> tuple[jax.Array, tuple[Evaluation, jax.Array]]:
            with observing() as losses:
                made = self._forward({**current, **dict(zip(trained, weights, strict=True))}, batch, key)
            loss = losses[start]
            # The gradient of every element is one: the loss operation has done its own reduction.
            return jnp.sum(loss.astype(jnp.float32)) * scale, (made, loss)

        gradients, (made, loss) = jax.grad(scaled_loss, has_aux=True)([current[n] for n in trained])
        new, outputs, watched = self._results(made)
        known = {gradient_name(n): g for n, g in zip(trained, gradients, strict=True)}
        known |= {updated_name(n): current[n] for n in trained}
        known |= updates.named_hyper(training.optimizer, training.rows, current[HYPER])
        known |= {LOSS: loss, LOSS_SCALE: scale, **watched}
        outputs += anchoring.gathered(self.anchors, current, batch, known)
        return updates.accumulated(training, gradients), new, outputs

    def update(self, shared: Arrays, local: Arrays, gradients: Arrays) -> tuple[list[jax.Array], dict[int, jax.Array]]:
        """New shared values, and those of local ones that are trained."""
        assert self.training is not None
        current = self._named(shared, local)
        current |= updates.updated(self.training, current, gradients, self.groups)
        changed = {self.local.index(n): current[n] for n in self.trained if n in self.local}
        return [current[n] for n in self.shared], changed

    def _named(self, shared: Arrays, local: Arrays) -> dict[str, Any]:
        pairs = (*zip(self.shared, shared, strict=True), *zip(self.local, local, strict=True))
        return {**self.constants, **dict(pairs)}

    def _forward(self, current: dict[str, Any], batch: Arrays, key: jax.Array) -> Evaluation:
        captured, groups = self.captured, self.groups
        parameters = [groups[n].slice(current[n]) if n in groups else current[n] for n in captured.parameters]
        buffers = [current[n] for n in captured.buffers]
        watch = [self.nodes[n] for n in self.anchors if n in self.nodes]
        around = naming.marked(self.around) if marks.names_wanted() else self.around
        return captured.evaluate(parameters, buffers, batch, key, around, watch)

    def _results(self, made: Evaluation) -> tuple[list[jax.Array], list[jax.Array], dict[str, jax.Array]]:
        written = (*self.captured.mutated_parameters, *self.captured.mutated)
        new = dict(zip(written, (*made.parameters, *made.mutated), strict=True))
        outputs = [o.astype(SHORT.get(o.dtype, o.dtype)) for o in made.outputs]
        watched = dict(zip([n for n in self.anchors if n in self.nodes], made.watched, strict=True))
        return [new[n] for n in self.local], [*outputs, *made.inputs], watched
