"""The modules users import as `keras.ipu`."""
