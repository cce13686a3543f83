"""What Docker and Podman share: containers, their raw streams, and an agent inside that keeps them and ends them."""
