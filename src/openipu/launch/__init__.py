"""Starting the instances of a program on one host or many, watching them, and ending them together."""
