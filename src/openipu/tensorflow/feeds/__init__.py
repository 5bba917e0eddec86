"""Feeds made by hand: data that a program on the device takes from the host and gives to it while it runs."""

from openipu.tensorflow import boundary

# As TensorFlow's own functions: they call the user's, which are converted.
boundary.never_convert("openipu")
