"""Side by side with the peers, as ratios."""
