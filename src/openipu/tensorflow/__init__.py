"""The TensorFlow front end."""

from openipu import environment, logs

# For a program that imported TensorFlow without our import hook; too late for what was printed while it was loaded.
environment.quiet_tensorflow()
logs.install()
