"""Ctrl-C ends a program soon, though the user's own code sleeps in a thread or process that prepares data."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

# The generator sleeps for two minutes; how soon a program must end is measured in seconds, with room for busy machines.
SOON = 40

KERAS = """
    import sys, time
    import numpy as np, tensorflow as tf, keras
    from tensorflow.python import ipu
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()

    at = 8

    def rows():
        for number in range(100):
            if number == at:
                print("sleeping", flush=True)
                time.sleep(120)
            yield np.ones((4, 3), "float32"), np.ones((4, 1), "float32")

    types = (tf.TensorSpec((4, 3), tf.float32), tf.TensorSpec((4, 1), tf.float32))
    data = tf.data.Dataset.from_generator(rows, output_signature=types)
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2)
        count = tf.Variable(0.0)
"""

FIT = """
    try:
        model.fit(data, steps_per_epoch=50, verbose=0)
    except KeyboardInterrupt:
        assert model.optimizer.iterations.numpy() == 8 and np.isfinite(model.get_weights()[0]).all()
        print("interrupted", flush=True)
"""

# TensorFlow's own threads are in the generator then, and nobody waits for them. Elements are fetched so far ahead.
CALLBACK = """
    at = 6

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(120)

    try:
        model.fit(data, steps_per_epoch=50, verbose=0, callbacks=[Slow()])
    except KeyboardInterrupt:
        assert np.isfinite(model.get_weights()[0]).all()
        print("interrupted", flush=True)
    at = 8
"""

FEED = """
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
    queue.initializer

    def body(x, y):
        count.assign_add(x[0, 0])

    @tf.function
    def loop():
        ipu.loops.repeat(2, body, [], infeed_queue=queue)

    try:
        for _ in range(50):
            strategy.run(loop)
    except KeyboardInterrupt:
        assert count.numpy() in (6, 8)
        print("interrupted", flush=True)
"""

# How many elements it takes only the execution knows: the device itself waits for the next one.
WAITING = """
    count.assign(0.0)
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
    queue.initializer

    @tf.function
    def endless(n):
        ipu.loops.repeat(n, body, [], infeed_queue=queue)

    try:
        strategy.run(endless, (tf.constant(3),))
        strategy.run(endless, (tf.constant(50),))
    except KeyboardInterrupt:
        assert count.numpy() == 3
        print("interrupted", flush=True)
"""

LOADERS = """
    import sys, time
    import torch, poptorch

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, i):
            if i == 40:
                print("sleeping", flush=True)
                time.sleep(120)
            return torch.ones(3), torch.ones(1)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x, y):
            out = self.layer(x)
            return out, torch.nn.functional.mse_loss(out, y)

    if __name__ == "__main__":
        for mode, workers in (("Sync", 2), ("Async", 0)):
            options = poptorch.Options()
            mode = poptorch.DataLoaderMode[mode]
            loader = poptorch.DataLoader(options, Slow(), batch_size=4, num_workers=workers, mode=mode)
            model = Net()
            executor = poptorch.trainingModel(model, options)
            try:
                for x, y in loader:
                    executor(x, y)
            except KeyboardInterrupt:
                assert torch.isfinite(model.layer.weight).all()
                print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    "program, times",
    [
        pytest.param(
            KERAS + FIT + CALLBACK + FEED + WAITING, 4, id="fit twice, an infeed, one that the device waits for"
        ),
        pytest.param(LOADERS, 2, id="a loader with workers, an asynchronous one"),
    ],
)
def test_a_program_whose_data_sleeps_ends_soon(tmp_path, program, times):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    # A terminal sends the signal to all processes of the program.
    running = subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for _ in range(times):
            assert running.stdout.readline() == "sleeping\n", running.communicate(timeout=1)
            time.sleep(0.3)
            began = time.monotonic()
            os.killpg(running.pid, signal.SIGINT)
            said = running.stdout.readline()
            heard = time.monotonic() - began
            assert said == "interrupted\n" and heard < SOON / 2
        _, error = running.communicate(timeout=SOON)
    finally:
        with running:
            running.kill()
    assert running.returncode == 0 and "Traceback" not in error, error
