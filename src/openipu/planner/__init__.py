"""Finds ways to spread a training program over IPUs, predicts each, and recommends one."""
