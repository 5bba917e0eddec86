"""The operations and contexts of the poptorch namespace."""
