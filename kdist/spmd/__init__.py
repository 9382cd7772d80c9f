"""The step as one program: traced once in global view, and partitioned over the replicas."""
