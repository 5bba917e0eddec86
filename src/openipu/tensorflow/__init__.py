"""The TensorFlow front end."""
