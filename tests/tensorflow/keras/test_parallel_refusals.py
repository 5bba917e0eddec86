"""Every violated rule of replication, accumulation and pipelining is refused with the numbers in it."""

import keras
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.tensorflow.keras import parallel
from tests.tensorflow.keras.parallel import BATCH


def fit(ipus, elements, steps_per_execution, prepare=lambda model: None, model=None, **settings):
    x, y = parallel.data(elements)
    with parallel.ipus(ipus, **settings):
        made = model() if model else parallel.build()
        prepare(made)
        made.compile("sgd", "mse", steps_per_execution=steps_per_execution)
        made.fit(x, y, batch_size=BATCH, verbose=0)


def pipelined(stages=(0, 0, 1, 1), count=4, **options):
    def prepare(model):
        model.set_pipeline_stage_assignment(list(stages))
        model.set_pipelining_options(count, **options)

    return prepare


def test_steps_per_execution_must_divide_the_steps_of_a_replica():
    with pytest.raises(ValueError, match=r"\(20\) must be a divisor of the number of batches \(50\).*to this replica"):
        fit(2, 100, 20)


def test_fewer_elements_than_replicas():
    with pytest.raises(ValueError, match="contains 3 items, but all 4 replicas are requested to run 1 steps each"):
        fit(4, 3, 1)


def test_a_remainder_is_dropped_with_a_warning(caplog):
    fit(4, 10, 2)
    assert "Dataset of length 10 is being evenly distributed between 4 replicas" in caplog.text
    assert "remaining 2 batch(es) will be dropped" in caplog.text


def test_accumulation_must_divide_steps_per_execution():
    with pytest.raises(RuntimeError, match=r"\(set to 10\) is not divisible by .*\(4\)"):
        fit(1, 20, 10, lambda m: m.set_gradient_accumulation_options(4))


def test_a_pipeline_needs_accumulation():
    with pytest.raises(ValueError, match="has not been set through `set_pipelining_options"):
        fit(2, 8, 4, lambda m: m.set_pipeline_stage_assignment([0, 0, 1, 1]))


@pytest.mark.parametrize(
    ("schedule", "count", "multiple"),
    [("Grouped", 6, 4), ("Interleaved", 3, 2)],
)
def test_the_schedule_decides_the_count(schedule, count, multiple):
    given = ipu.pipelining_ops.PipelineSchedule[schedule]
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"must be a multiple of {multiple}, but it is {count}"):
        fit(2, count * 2, count, pipelined(count=count, pipeline_schedule=given))


def test_evaluation_counts_steps_per_execution():
    x, y = parallel.data(9)
    with parallel.ipus(2):
        model = parallel.build()
        pipelined()(model)
        model.compile("sgd", "mse", steps_per_execution=3)
        with pytest.raises(tf.errors.FailedPreconditionError, match="must be a multiple of 2, but it is 3"):
            model.evaluate(x, y, batch_size=BATCH, verbose=0)


def test_interleaved_cannot_train_two_stages_on_one_ipu():
    interleaved = ipu.pipelining_ops.PipelineSchedule.Interleaved
    with pytest.raises(NotImplementedError, match="'Interleaved' does not currently support multiple"):
        fit(1, 8, 4, pipelined(device_mapping=[0, 0], pipeline_schedule=interleaved))


def test_too_few_ipus_for_the_stages():
    with pytest.raises(ValueError, match="has 2 IPUs attached, however the current model requires a multiple of 4"):
        fit(2, 16, 8, pipelined((0, 1, 2, 3), 8))


def test_gaps_between_stages():
    def prepare(model):
        assignment = model.get_pipeline_stage_assignment()
        for item, stage in zip(assignment, (0, 0, 2, 2), strict=True):
            item.pipeline_stage = stage
        model.set_pipeline_stage_assignment(assignment)
        model.set_pipelining_options(6)

    def functional():
        inputs = keras.Input((6,))
        hidden = inputs
        for _ in range(3):
            hidden = keras.layers.Dense(4)(hidden)
        return keras.Model(inputs, keras.layers.Dense(3)(hidden))

    with pytest.raises(RuntimeError, match=r"highest stage with an assignment is stage 2.*stages \[1\]"):
        fit(4, 12, 6, prepare, functional)


def test_sequential_stages_must_not_jump():
    with (
        parallel.ipus(4),
        pytest.raises(ValueError, match="has been assigned to pipeline stage 2, however the previous"),
    ):
        parallel.build().set_pipeline_stage_assignment([0, 0, 2, 2])


def test_stages_out_of_order():
    with parallel.ipus(2):
        with keras.ipu.PipelineStage(1):
            inputs = keras.Input((6,))
            hidden = keras.layers.Dense(4)(inputs)
        with keras.ipu.PipelineStage(0):
            outputs = keras.layers.Dense(3)(hidden)
        with pytest.raises(ValueError, match="dependency from a pipeline stage which has not yet been executed"):
            model = keras.Model(inputs, outputs)
            model.set_pipelining_options(4)
            model.compile("sgd", "mse", steps_per_execution=4)
            x, y = parallel.data(4)
            model.fit(x, y, batch_size=BATCH, verbose=0)


def test_pipeline_stage_outside_a_strategy():
    refusal = pytest.raises(RuntimeError, match="PipelineStage may only be used from within an IPUStrategy context")
    with refusal, keras.ipu.PipelineStage(0):
        pass


def test_train_step_must_not_be_overridden():
    class Own(keras.Model):
        def call(self, x):
            return x

        def train_step(self, data):
            return {}

    with pytest.raises(RuntimeError, match=r"The function `train_step` for the model .* has been overridden"):
        fit(1, 4, 1, model=Own)


@pytest.mark.parametrize("steps", [0, -1, 2.0, "4", True])
def test_accumulation_steps_are_positive_integers(steps):
    with parallel.ipus(1), pytest.raises(ValueError, match="to be a positive integer, but got"):
        parallel.build().set_gradient_accumulation_options(steps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_accumulation_count": 4}, "Set the `gradient_accumulation_steps_per_replica` argument"),
        ({"computational_stages": []}, "This argument is automatically set by Keras."),
        ({"outfeed_loss": True}, "This argument is not compatible with Keras."),
        ({"experimental_normalize_gradients": True}, "use `gradient_accumulation_reduction_method` instead"),
    ],
)
def test_pipelining_arguments_that_are_not_for_keras(options, message):
    with parallel.ipus(1), pytest.raises(ValueError, match=message):
        parallel.build().set_pipelining_options(4, **options)


def test_unknown_reduction_lists_the_valid_ones():
    with parallel.ipus(1), pytest.raises(ValueError, match="Valid values are: SUM, MEAN, RUNNING_MEAN"):
        parallel.build().set_gradient_accumulation_options(2, "median")


@pytest.mark.parametrize(
    ("schedule", "mode", "works"),
    [
        ("Grouped", "RecomputeThenBackpropagate", True),
        ("Sequential", "RecomputeThenBackpropagate", False),
        ("Interleaved", "RecomputeAndBackpropagateInterleaved", False),
        ("Sequential", "RecomputeAndBackpropagateInterleaved", True),
    ],
)
def test_recomputation_modes_belong_to_schedules(schedule, mode, works):
    ops = ipu.pipelining_ops
    options = {"pipeline_schedule": ops.PipelineSchedule[schedule], "recomputation_mode": ops.RecomputationMode[mode]}
    if works:
        fit(2, 8, 4, pipelined(**options), allow_recompute=True)
    else:
        with pytest.raises(tf.errors.UnimplementedError, match=f"{mode} is not supported"):
            fit(2, 8, 4, pipelined(**options), allow_recompute=True)


def test_sharded_optimizer_state_needs_offloading():
    with pytest.raises(ValueError, match="optimizer state must be offloaded"):
        fit(2, 8, 4, pipelined(replicated_optimizer_state_sharding=True, offload_weight_update_variables=False))


def test_a_layer_in_stages_on_two_ipus_is_refused():
    def shared():
        x = keras.Input((6,))
        layer = keras.layers.Dense(6)
        with ipu.keras.PipelineStage(0):
            h = layer(x)
        with ipu.keras.PipelineStage(1):
            return keras.Model(x, keras.layers.Dense(3)(layer(h)))

    with pytest.raises(tf.errors.UnimplementedError, match="variables cannot be shared across IPUs"):
        fit(2, 8, 8, lambda m: m.set_pipelining_options(8), shared)
    fit(2, 8, 8, lambda m: m.set_pipelining_options(8, device_mapping=[1, 1]), shared)
