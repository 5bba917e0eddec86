"""Programs of TensorFlow 1: graphs and sessions, with one operation for each program that runs on the IPU."""
