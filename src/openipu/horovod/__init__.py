"""Horovod's names, as far as IPU programs use them, where the real package is not installed: values of the host only.

Gradients are reduced inside of compiled programs, over the replicas of all instances.
"""
