"""What child processes of the tests do, in a module of its own: a spawned child imports the one that its work is in."""

import multiprocessing
import time

from openipu.errors import ForkedError


def _answer(action, queue):
    try:
        queue.put(action())
    except ForkedError as error:
        queue.put(str(error))
    except BaseException as error:
        queue.put(repr(error))


def in_child(action, method="fork"):
    """What a function returns in another process, or says when it is refused there."""
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_answer, args=(action, queue))
    child.start()
    try:
        return queue.get(timeout=120)
    finally:
        child.join(10)
        child.kill()


def hold(folder, ready):
    """Hold the lock of a compilation for ever."""
    from openipu.compiler import Cache

    with Cache(folder).locked("key"):
        ready.set()
        time.sleep(600)


def loss_of_a_step():
    """Train one step with PopTorch."""
    import torch

    import poptorch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x, y):
            return torch.nn.functional.mse_loss(self.layer(x), y)

    generator = torch.Generator().manual_seed(0)
    return float(
        poptorch.trainingModel(Net())(torch.randn(8, 4, generator=generator), torch.randn(8, 2, generator=generator))
    )
