"""Steps for undefined-value tracking, and the instructions that get them."""
