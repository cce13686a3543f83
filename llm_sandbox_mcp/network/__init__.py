"""Network access by host name: one proxy per server; sandboxes without a network reach it at their own loopback."""
