"""Programs compiled ahead of time: written to files, started as engines, called from many threads."""
