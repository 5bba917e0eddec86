"""Estimators for the IPU: the part of the contract of TensorFlow's own, which are gone, that programs for IPUs use."""
