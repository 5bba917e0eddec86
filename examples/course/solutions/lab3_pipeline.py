# %% [markdown]
# # Lab 3: a model over several IPUs (solution)
#
# A model that is too large for one IPU is cut into *stages*, each on an IPU of its own. While the second stage works
# on one batch, the first can already work on the next: a *pipeline*. To keep all IPUs busy, many batches must be on
# their way before the weights change, so pipelining comes with gradient accumulation.
#
# Before you build anything, look at the plan:
#
#     openipu schedule --stages 2 --count 8

# %%
import os

from tensorflow import keras
from tensorflow.python import ipu

os.environ.setdefault("OPENIPU_DATASETS", "sample")  # the course needs no network

BATCH = 16
EPOCHS = 3

# %% [markdown]
# ## Step 1: one IPU a stage

# %%
STAGES = 2

config = ipu.config.IPUConfig()
config.auto_select_ipus = STAGES
config.configure_ipu_system()

# %% [markdown]
# ## Step 2: batches on their way
#
# Eight batches pass through the pipeline before the weights are updated. The pipeline fills and drains once an update;
# in between all stages are busy. `openipu schedule` shows that idle part, the *bubble*. It shrinks as the number of
# batches grows; the default schedule wants a multiple of twice the number of stages.
#
# One execution must hold a whole number of updates.

# %%
ACCUMULATED = 8
STEPS_PER_EXECUTION = 24

(x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
x_train, y_train, x_test, y_test = x_train[:5000], y_train[:5000], x_test[:1000], y_test[:1000]  # quick


def prepare(x, y):
    """Digits as float images; their number fills whole executions."""
    count = len(x) // (BATCH * STEPS_PER_EXECUTION) * (BATCH * STEPS_PER_EXECUTION)
    return (x[:count, ..., None] / 255).astype("float32"), y[:count].astype("int32")


x_train, y_train = prepare(x_train, y_train)
x_test, y_test = prepare(x_test, y_test)

# %% [markdown]
# ## Step 3: cut the model
#
# Layers that are called inside `keras.ipu.PipelineStage(n)` belong to stage `n`. A good cut gives every stage about
# the same work: the slowest one sets the pace. Here both convolutions are dear, so the cut goes between them.


# %%
def make_model():
    """A small convolutional network in two stages."""
    keras.utils.set_random_seed(1)
    image = keras.Input((28, 28, 1))
    with keras.ipu.PipelineStage(0):
        x = keras.layers.Conv2D(8, 3, activation="relu")(image)
        x = keras.layers.MaxPooling2D()(x)
    with keras.ipu.PipelineStage(1):
        x = keras.layers.Conv2D(16, 3, activation="relu")(x)
        x = keras.layers.MaxPooling2D()(x)
        x = keras.layers.Flatten()(x)
        digit = keras.layers.Dense(10, activation="softmax")(x)
    return keras.Model(image, digit)


# %% [markdown]
# ## Step 4: train the pipeline

# %%
with ipu.ipu_strategy.IPUStrategy().scope():
    model = make_model()
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=ACCUMULATED)
    model.print_pipeline_stage_assignment_summary()
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=keras.optimizers.SGD(0.05),
        metrics=["accuracy"],
        steps_per_execution=STEPS_PER_EXECUTION,
    )
    model.fit(x_train, y_train, batch_size=BATCH, epochs=EPOCHS, verbose=2)
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH, verbose=0)

# %% [markdown]
# ## Check

# %%
print(f"{len({a.pipeline_stage for a in model.get_pipeline_stage_assignment()})} stages")
print(f"test accuracy {accuracy:.3f}")
