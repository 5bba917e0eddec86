# %% [markdown]
# # Lab 2: train on several IPUs at once (solution)
#
# The simplest way to use more IPUs is to give each of them a copy of the model, a *replica*. Every replica takes its
# own batches; before the weights are updated, the gradients of all replicas are combined, so all copies stay equal.
#
# On the IPU this is not an option of the model. The program asks for more IPUs, and the model is copied until they are
# filled.

# %%
import os

from tensorflow import keras
from tensorflow.python import ipu

os.environ.setdefault("OPENIPU_DATASETS", "sample")  # the course needs no network

BATCH = 16  # of one replica
EPOCHS = 3

# %%
(x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
x_train, y_train, x_test, y_test = x_train[:5000], y_train[:5000], x_test[:1000], y_test[:1000]  # quick
x_train, x_test = ((x[..., None] / 255).astype("float32") for x in (x_train, x_test))
y_train, y_test = (y.astype("int32") for y in (y_train, y_test))


def make_model():
    """A small convolutional network that tells digits apart."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


# %% [markdown]
# ## Step 1: ask for more IPUs
#
# Numbers of IPUs are powers of two.

# %%
REPLICAS = 2

config = ipu.config.IPUConfig()
config.auto_select_ipus = REPLICAS
config.configure_ipu_system()

# %% [markdown]
# ## Step 2: enough data for all
#
# In one execution every replica takes `STEPS_PER_EXECUTION` batches of its own. So one execution needs `BATCH *
# STEPS_PER_EXECUTION * REPLICAS` examples, and there must be a whole number of executions.

# %%
STEPS_PER_EXECUTION = 12
PER_EXECUTION = BATCH * STEPS_PER_EXECUTION * REPLICAS


def cut(x, y):
    """Leaves out the examples at the end that fill no execution."""
    count = len(x) // PER_EXECUTION * PER_EXECUTION
    return x[:count], y[:count]


x_train, y_train = cut(x_train, y_train)
x_test, y_test = cut(x_test, y_test)
print(f"{len(x_train)} digits to train with, {len(x_test)} to test with, {PER_EXECUTION} in one execution")

# %% [markdown]
# ## Step 3: fewer, better updates
#
# With gradient accumulation the gradients of several batches are added up before the weights change. It has the effect
# of a larger batch without its memory, and the replicas exchange gradients less often. One update now uses `BATCH *
# ACCUMULATED * REPLICAS` examples. `steps_per_execution` must be a multiple of the accumulated batches.
#
# Gradients of accumulated batches are *summed*, so an update is longer by itself; those of replicas are *averaged*, so
# the learning rate is what makes up for the fewer updates of more replicas.

# %%
ACCUMULATED = 4
RATE = 0.025 * REPLICAS

with ipu.ipu_strategy.IPUStrategy().scope():
    model = make_model()
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=ACCUMULATED)
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=keras.optimizers.SGD(RATE),
        metrics=["accuracy"],
        steps_per_execution=STEPS_PER_EXECUTION,
    )
    model.fit(x_train, y_train, batch_size=BATCH, epochs=EPOCHS, verbose=2)
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH, verbose=0)

# %% [markdown]
# ## Check

# %%
print(f"{REPLICAS} replicas, {BATCH * ACCUMULATED * REPLICAS} examples an update")
print(f"test accuracy {accuracy:.3f}")
