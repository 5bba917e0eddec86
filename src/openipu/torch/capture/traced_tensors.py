"""Where traced tensors are: on the IPU to the code of the user and of libraries, on the host to torch itself."""

import contextlib
import os
import sys

import torch

import openipu
from openipu.torch.boundary import FakeTensor, replaced_device
from openipu.torch.tracing import isRunningOnIpu

_IPU = torch.device("ipu")
# Code that computes with traced tensors, for which they are where they are.
_INNER = (os.path.dirname(torch.__file__), os.path.dirname(openipu.__file__), "<eval_with_key>")
_ASKING = 2  # frames from here to who asks: the property is between


def _shown(tensor: FakeTensor, real: torch.device) -> torch.device:
    asking = sys._getframe(_ASKING).f_code.co_filename
    return real if not isRunningOnIpu() or asking.startswith(_INNER) else _IPU


def on_ipu() -> contextlib.AbstractContextManager[None]:
    """While `forward` runs, `x.device` is the IPU for whoever asks outside of torch."""
    return replaced_device(_shown)
