"""A program with an asynchronous loader that ends in one of several ways; it prints its processes first."""

import os
import signal
import sys
import time

import psutil

import poptorch
from tests.torch.data.datasets import Numbers, Stuck


def main():
    # What a shell starts in the background ignores this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    way, dataset = sys.argv[1], {"numbers": Numbers, "stuck": Stuck}[sys.argv[2]]
    mode = poptorch.DataLoaderMode.Async
    start = {"sharing_strategy": poptorch.SharingStrategy[sys.argv[4]]}
    loader = poptorch.DataLoader(
        poptorch.Options(), dataset(100), num_workers=int(sys.argv[3]), mode=mode, async_options=start
    )
    next(iter(loader))
    own = psutil.Process()
    print(*[child.pid for child in own.children(recursive=True)], flush=True)
    if way == "fail":
        raise RuntimeError("the program fails")
    if way in ("kill", "terminate", "interrupt"):
        numbers = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
        os.kill(own.pid, numbers[way])
        time.sleep(30)


if __name__ == "__main__":
    main()
