"""A Kafka cluster as one that holds backlogs."""
