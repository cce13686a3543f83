"""The network by name: one proxy per server, which sandboxes without a network reach at their own loopback."""
