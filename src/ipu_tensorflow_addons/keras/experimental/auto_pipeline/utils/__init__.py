"""What the tools are made of."""
