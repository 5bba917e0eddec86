"""Loops on the device, under the path IPU programs know."""

from openipu.tensorflow.feeds.loops import repeat, while_loop

__all__ = ["repeat", "while_loop"]
