"""Optimizers: what programs construct, what is known of them, and the rules they update weights by."""
