"""Reading StableHLO: from text, through MLIR, to plain data."""
