"""How the virtual IPUs of TensorFlow devices are configured, found and attached."""
