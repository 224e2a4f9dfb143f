"""`weir demo`: a short real workload on the stack, and what is told about it."""
