"""Random Keras models on random plans beside stock Keras; trainings that are interrupted at random moments."""

import contextlib
import random

import attrs
import numpy as np

from tests.faults import interrupting
from tests.soak import comparing
from tests.soak.keras_models import Recipe, library, optimizer


@attrs.frozen
class Plan:
    """How one training is spread."""

    batch: int
    executions: int
    updates: int
    accumulation: int
    replicas: int
    stages: int
    mean: bool
    weighted: bool
    dataset: bool

    @classmethod
    def drawn(cls, draw):
        """A random plan."""
        replicas, stages = draw.choice([(1, 1), (1, 1), (1, 1), (2, 1), (4, 1), (1, 2), (1, 3), (2, 2)])
        accumulation = draw.choice([1, 1, 2, 3]) if stages == 1 else 2 * stages * draw.choice([1, 2])
        return cls(
            draw.randint(1, 5), draw.randint(1, 3), draw.randint(1, 3), accumulation, replicas, stages,
            draw.random() < 0.5, draw.random() < 0.2, draw.random() < 0.3,
        )  # fmt: skip

    def within(self, layers):
        """With no more stages than layers: IPUs that are left over would become replicas."""
        stages = min(self.stages, layers)
        return self if stages == self.stages else attrs.evolve(self, stages=stages, accumulation=2 * stages)

    @property
    def micro_batches(self):
        """Of the whole training."""
        return self.executions * self.updates * self.accumulation * self.replicas


def run(seed):
    """One case; returns what it was."""
    draw = random.Random(seed)
    if draw.random() < 0.08:
        return _interrupted(seed, draw)
    return _compared(seed, draw)


@contextlib.contextmanager
def ipus(count):
    """The scope of a strategy on so many virtual IPUs."""
    from tensorflow.python import ipu

    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = count
    config.configure_ipu_system()
    try:
        with ipu.ipu_strategy.IPUStrategy().scope():
            yield
    finally:
        ipu.config.reset_ipu_configuration()


def _compared(seed, draw):
    plan = Plan.drawn(draw)
    recipe = Recipe(seed, normalised=plan.replicas == 1)
    name, make = optimizer(draw)
    library().utils.set_random_seed(seed % 2**31)
    stock, other = recipe.build(), recipe.build()
    plan = plan.within(sum(not isinstance(layer, library().layers.InputLayer) for layer in stock.layers))
    x, y = recipe.data(plan.micro_batches * plan.batch)
    weight = np.random.default_rng(seed).uniform(0.5, 2, len(x)).astype(np.float32) if plan.weighted else None
    start = stock.get_weights()
    described = f"{' '.join(recipe.words)} | {name} | {attrs.astuple(plan)}"
    other.set_weights(comparing.moved(start, seed))
    # What only rounding decides shows when inputs move too.
    near = comparing.moved([x], seed)[0]
    losses = [_reference(model, recipe, make, plan, rows, y, weight) for model, rows in ((stock, x), (other, near))]
    with ipus(plan.replicas * _power(plan.stages)):
        ours = recipe.build()
        ours.set_weights(start)
        _set_up(ours, plan)
        ours.compile(make(), recipe.loss_function(), steps_per_execution=plan.updates * plan.accumulation)
        history = _fit(ours, plan, x, y, weight)
        named = [
            (f"weight {i}", *values)
            for i, values in enumerate(zip(stock.get_weights(), ours.get_weights(), other.get_weights(), strict=True))
        ]
        if plan.replicas == 1:
            # With replicas the logs are those of one of them.
            named.append(("loss", losses[0], history["loss"][-1], losses[1]))
        rows = plan.batch * plan.replicas * plan.updates * plan.accumulation
        predicted = ours.predict(x[:rows], batch_size=plan.batch, verbose=0)
        named.append(("predictions", stock(x[:rows]), predicted, other(near[:rows])))
        try:
            comparing.check(named)
        except (comparing.Different, comparing.Undecided) as error:
            error.add_note(described)
            raise
    return described


def _power(stages):
    return 1 << (stages - 1).bit_length()


def _set_up(model, plan):
    kind = "mean" if plan.mean else "sum"
    if plan.stages > 1:
        assignments = model.get_pipeline_stage_assignment()
        stages = min(plan.stages, len(assignments))
        for number, assignment in enumerate(assignments):
            assignment.pipeline_stage = number * stages // len(assignments)
        model.set_pipeline_stage_assignment(assignments)
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=plan.accumulation,
            gradient_accumulation_reduction_method=kind,
            device_mapping=list(range(stages)),
        )
    elif plan.accumulation > 1:
        model.set_gradient_accumulation_options(plan.accumulation, kind)


def _fit(model, plan, x, y, weight):
    given = dict(epochs=1, verbose=0, shuffle=False)
    if plan.dataset:
        import tensorflow as tf

        parts = (x, y) if weight is None else (x, y, weight)
        return model.fit(tf.data.Dataset.from_tensor_slices(parts).batch(plan.batch, True), **given).history
    return model.fit(x, y, batch_size=plan.batch, sample_weight=weight, **given).history


def _reference(model, recipe, make, plan, x, y, weight):
    """Train a stock model one micro-batch at a time; returns the mean loss."""
    import tensorflow as tf

    loss_of, update, losses, count = recipe.loss_function(), make(), [], plan.batch
    trained = model.trainable_variables
    variables = [getattr(v, "value", v) if not isinstance(v, tf.Variable) else v for v in trained]
    parts = plan.accumulation * plan.replicas
    # The rows of an embedding stay rows, as in `fit`, unless there is something to add them to. These optimizers of
    # Keras 3 square equal rows one by one; ours gives them the dense form, which sums rows first (docs/tensorflow.md).
    rows_stay = parts == 1 and type(update).__name__ not in ("RMSprop", "Adagrad")

    @tf.function(jit_compile=False)
    def gradients(x, y, w):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True), sample_weight=w) + sum(model.losses)
        return loss, [g if rows_stay else tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    total = None
    for number in range(plan.micro_batches):
        rows = slice(number * count, (number + 1) * count)
        w = tf.ones(count) if weight is None else tf.constant(weight[rows])
        loss, found = gradients(tf.constant(x[rows]), tf.constant(y[rows]), w)
        if plan.mean and plan.accumulation > 1:
            found = [g / plan.accumulation for g in found]
        total = found if total is None else [t + g for t, g in zip(total, found, strict=True)]
        losses.append(float(loss))
        if (number + 1) % parts == 0:
            update.apply_gradients(zip(total, trained, strict=True))
            total = None
    return np.mean(losses)


def _interrupted(seed, draw):
    """The same batch again and again, stopped at random: the state is always one that an execution has left."""
    recipe = Recipe(seed, normalised=True)
    name, make = optimizer(draw)
    steps, batch = draw.choice([1, 1, 4]), draw.randint(1, 4)
    x, y = recipe.data(batch)
    x, y = np.concatenate([x] * steps), np.concatenate([y] * steps)
    library().utils.set_random_seed(seed % 2**31)
    described = f"{' '.join(recipe.words)} | {name} | interrupted, {steps} steps"
    with ipus(1):
        model = recipe.build()
        model.compile(make(), recipe.loss_function(), steps_per_execution=steps)

        def train(executions):
            model.fit(x, y, batch_size=batch, epochs=executions, verbose=0, shuffle=False)

        train(1)
        variables = [*model.weights, *_own(model.optimizer)]

        def state():
            return [v.numpy() for v in variables]

        def put(values):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

        try:
            interrupting.check(train, state, put, draw, described)
        except AssertionError as error:
            error.add_note(described)
            raise
    return described


def _own(optimizer):
    found = optimizer.variables
    # Keras 2's Nadam does not count its schedule's product among them.
    product = getattr(optimizer, "_u_product", None)
    return [*(found() if callable(found) else found), *([product] if isinstance(product, tf_variable()) else [])]


def tf_variable():
    """The class of what Keras 2 trains."""
    import tensorflow as tf

    return tf.Variable
