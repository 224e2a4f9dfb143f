"""`weir collect pulsar`: the collector of a Pulsar cluster, tied to Weir's topics."""
