"""Random torch modules on random plans beside stock torch; trainings that are interrupted at random moments."""

import copy
import random

import attrs
import numpy as np

from tests.faults import interrupting
from tests.soak import comparing
from tests.soak.torch_models import Recipe, optimizers


@attrs.frozen
class Plan:
    """How one training is spread."""

    batch: int
    executions: int
    iterations: int
    accumulation: int
    replicas: int
    stages: int

    @classmethod
    def drawn(cls, draw):
        """A random plan."""
        replicas, stages = draw.choice([(1, 1), (1, 1), (1, 1), (2, 1), (4, 1), (1, 2), (1, 3), (2, 2)])
        accumulation = draw.choice([1, 1, 2, 3]) if stages == 1 else 2 * stages + draw.randint(0, 2)
        return cls(draw.randint(1, 5), draw.randint(1, 3), draw.randint(1, 3), accumulation, replicas, stages)

    @property
    def rows(self):
        """Of one call."""
        return self.batch * self.iterations * self.accumulation * self.replicas


def run(seed):
    """One case; returns what it was."""
    draw = random.Random(seed)
    if draw.random() < 0.08:
        return _interrupted(seed, draw)
    return _compared(seed, draw)


def _compared(seed, draw):
    import torch

    import poptorch

    plan = Plan.drawn(draw)
    torch.manual_seed(seed % 2**31)
    # Torch refuses to normalise one value a channel, and ours does with its words.
    recipe = Recipe(seed, normalised=plan.replicas == 1 and plan.batch > 1)
    stock = recipe.build()
    ours, other = copy.deepcopy(stock), copy.deepcopy(stock)
    with torch.no_grad():
        for value, new in zip(
            other.parameters(), comparing.moved([p.numpy() for p in other.parameters()], seed), strict=True
        ):
            value.copy_(torch.from_numpy(new))
    name, ours_optimizer, stock_optimizer = optimizers(draw)
    described = f"{' '.join(recipe.words)} | {name} | {attrs.astuple(plan)}"
    batches = [recipe.data(plan.rows) for _ in range(plan.executions)]
    # What only rounding decides shows when inputs move too.
    near = [[torch.from_numpy(comparing.moved([x.numpy()], seed)[0]), y] for x, y in batches]
    pairs = ((stock, batches), (other, near))
    losses = [_reference(model, stock_optimizer(model), plan, rows) for model, rows in pairs]
    options = poptorch.Options().deviceIterations(plan.iterations).replicationFactor(plan.replicas)
    options.Training.gradientAccumulation(plan.accumulation)
    options.outputMode(poptorch.OutputMode.All).autoRoundNumIPUs(True)
    if plan.stages > 1:
        recipe.cut(ours, plan.stages)
    executor = poptorch.trainingModel(ours, options, ours_optimizer(ours))
    try:
        made = np.concatenate([executor(*batch)[1].reshape(-1).numpy() for batch in batches])
        named = [("losses", losses[0], made, losses[1])]
        states = [model.state_dict() for model in (stock, ours, other)]
        named += [(key, *(state[key].detach().numpy() for state in states)) for key in states[0]]
        executor.destroy()
        if plan.stages == 1 and draw.random() < 0.5:
            named.append(("predictions", *_predicted(stock, ours, other, batches[0][:-1], plan.batch)))
    finally:
        executor.destroy()
    try:
        comparing.check(named)
    except (comparing.Different, comparing.Undecided) as error:
        error.add_note(described)
        raise
    return described


def _predicted(stock, ours, other, inputs, batch):
    import torch

    import poptorch

    rows = [x[:batch] for x in inputs]
    inference = poptorch.inferenceModel(ours.net.eval())
    try:
        made = inference(*rows)
    finally:
        inference.destroy()
    with torch.no_grad():
        return stock.net.eval()(*rows).numpy(), made.numpy(), other.net.eval()(*rows).numpy()


def _reference(model, optimizer, plan, batches):
    """Train a stock module one micro-batch at a time; the loss of each."""
    import torch

    parts, losses = plan.accumulation * plan.replicas, []
    for batch in batches:
        micro = list(zip(*(torch.chunk(x, plan.iterations * parts) for x in batch), strict=True))
        for start in range(0, len(micro), parts):
            optimizer.zero_grad()
            for one in micro[start : start + parts]:
                loss = model(*one)[1]
                (loss / parts).backward()
                losses.append(float(loss.detach()))
            optimizer.step()
    return np.array(losses, np.float32)


def _interrupted(seed, draw):
    """The same batch again and again, stopped at random: the state is always one that an execution has left."""
    import torch

    import poptorch

    torch.manual_seed(seed % 2**31)
    recipe = Recipe(seed, normalised=True)
    model = recipe.build()
    name, make, _ = optimizers(draw)
    steps = draw.choice([1, 1, 4])
    described = f"{' '.join(recipe.words)} | {name} | interrupted, {steps} steps"
    batch = [torch.cat([x] * steps) for x in recipe.data(draw.randint(2, 4))]
    executor = poptorch.trainingModel(model, poptorch.Options().deviceIterations(steps), make(model))

    def train(executions):
        for _ in range(executions):
            executor(*batch)

    def state():
        return [v.detach().clone().numpy() for v in model.state_dict().values()] + [
            v.numpy().copy() for _, v in sorted(executor._session.optimizer_state()["ipu_state"].items())
        ]

    def put(values):
        from openipu.torch.executor.optimizer_state import write_state

        weights = dict(zip(model.state_dict(), map(torch.from_numpy, values), strict=False))
        model.load_state_dict(weights)
        executor.copyWeightsToDevice()
        now = executor._session.optimizer_state()
        slots = dict(zip(sorted(now["ipu_state"]), map(torch.from_numpy, values[len(weights) :]), strict=True))
        write_state(executor._session.compiled, {**now, "ipu_state": slots})

    try:
        train(1)
        interrupting.check(train, state, put, draw, described)
        executor.detachFromDevice()
        executor.attachToDevice()
        train(1)
    except AssertionError as error:
        error.add_note(described)
        raise
    finally:
        executor.destroy()
    return described
