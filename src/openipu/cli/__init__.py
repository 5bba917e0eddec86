"""The commands users type."""
