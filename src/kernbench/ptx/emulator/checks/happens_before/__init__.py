"""Which access comes before which: clocks of actors, what threads know of each other, order through memory."""
