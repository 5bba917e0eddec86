"""Keras models on virtual IPUs: their classes are extended when they are made inside an IPU strategy's scope."""
