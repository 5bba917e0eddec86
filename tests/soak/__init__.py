"""A long run of random models beside stock ones, with interrupts and kills: `make soak`."""
