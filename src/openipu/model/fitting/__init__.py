"""Whether a program fits into the memory of its IPUs, and what to say and to change when it does not."""
