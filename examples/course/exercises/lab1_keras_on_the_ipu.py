# %% [markdown]
# # Lab 1: port Keras code to the IPU
#
# You start from an ordinary Keras program and move it to an IPU in four small steps. The model, the loss, the
# optimizer and the data stay as they are.
#
# An IPU compiles your whole training loop into one executable, which then lives on the device. Everything below
# follows from that: shapes must be known before the program starts, and the more steps one execution has, the less
# often the device waits for the host.
#
# The notebook runs as it is, on the host. Where you see **TODO**, change the cell, then run the notebook again.

# %%
import contextlib
import os

from tensorflow import keras
from tensorflow.python import ipu

os.environ.setdefault("OPENIPU_DATASETS", "sample")  # the course needs no network

BATCH = 32
EPOCHS = 2

# %% [markdown]
# ## The data and the model
#
# Handwritten digits, and a small convolutional network.

# %%
(x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
x_train, y_train, x_test, y_test = x_train[:5000], y_train[:5000], x_test[:1000], y_test[:1000]  # quick
x_train, x_test = ((x[..., None] / 255).astype("float32") for x in (x_train, x_test))
y_train, y_test = (y.astype("int32") for y in (y_train, y_test))
print(f"{len(x_train)} digits to train with, {len(x_test)} to test with")


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


def train(model, x, y, **options):
    """Compiles the model and trains it; Keras prints how long a step takes."""
    model.compile(
        loss="sparse_categorical_crossentropy", optimizer=keras.optimizers.SGD(0.1), metrics=["accuracy"], **options
    )
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=2)


# %% [markdown]
# ## Step 1: static shapes
#
# The executable is compiled for one batch size. A last, smaller batch would need another one, so an IPU program leaves
# it out: the number of examples must be a multiple of the batch size, for training and for testing. Later one
# execution will have several steps; then the number must be a multiple of the batch size times the steps.

# %%
STEPS_PER_EXECUTION = 1


def cut(x, y):
    """Leaves out the examples at the end that fill no execution."""
    count = len(x)  # TODO: round down to a multiple of BATCH * STEPS_PER_EXECUTION
    return x[:count], y[:count]


x_train, y_train = cut(x_train, y_train)
x_test, y_test = cut(x_test, y_test)
print(f"{len(x_train)} digits to train with, {len(x_test)} to test with")

# %% [markdown]
# ## Step 2: attach to an IPU
#
# A configuration says how many IPUs the program wants. `configure_ipu_system` attaches to them; they stay yours until
# the program ends. While the notebook is open, type `gc-monitor` in a terminal and look who holds the IPU.

# %%
config = ipu.config.IPUConfig()
# TODO: ask for one IPU with config.auto_select_ipus, then call config.configure_ipu_system()

# %% [markdown]
# ## Step 3: build the model in the scope of a strategy
#
# Models made inside `IPUStrategy().scope()` train on the IPU. Everything you do with the model belongs inside too:
# making, compiling, fitting, evaluating.
#
# First run the cell as it is and note the time per step and the accuracy: this is Keras on the host.
#
# ## Step 4: many steps in one execution
#
# With `steps_per_execution` the device takes that many steps before it comes back to Python. Hand it to `train` and
# try 1, 4 and 12 (in step 1, so that the data is cut as well). Compare the time per step of the last epoch: the first
# one includes compilation.

# %%
scope = contextlib.nullcontext()  # TODO: the scope() of an ipu.ipu_strategy.IPUStrategy()
with scope:
    model = make_model()
    train(model, x_train, y_train)  # TODO: steps_per_execution=STEPS_PER_EXECUTION
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH, verbose=0)

# %% [markdown]
# ## Check
#
# When you are done, the next cell says so, and the accuracy is that of the host.

# %%
print("trained on the IPU" if hasattr(model, "set_pipelining_options") else "trained on the host")
print(f"test accuracy {accuracy:.3f}")

# %% [markdown]
# ## Questions
#
# 1. What does the program say if you forget step 1? Read the error message: it names the numbers.
# 2. Why is the first epoch slower than the second on the IPU, whatever `steps_per_execution` is?
# 3. Which callbacks of Keras are called less often when `steps_per_execution` grows?
