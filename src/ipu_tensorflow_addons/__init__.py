"""The addons of TensorFlow for the IPU: names only, the classes are those of openipu."""
