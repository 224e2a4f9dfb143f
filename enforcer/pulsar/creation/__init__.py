"""Topics that clients would create over Pulsar's binary protocol, under the quota on partition mutations."""
