"""The TensorFlow front end."""

from openipu import environment, frameworks, logs

frameworks.require("jax", "tensorflow")

# For a program that imported TensorFlow without our import hook; too late for what TensorFlow read while it was loaded.
environment.without_onednn()
environment.quiet_libraries()
logs.install()
