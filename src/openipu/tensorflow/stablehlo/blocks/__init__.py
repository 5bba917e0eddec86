"""What loops and the small computations of other operations amount to, told without running them."""
