"""`kdist find`: batch size, learning rate, memory, and a plan for more replicas."""
