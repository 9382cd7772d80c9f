"""What the hardware and a model should take, and what is chosen by it."""
