"""The parts that Docker and Podman share: containers, their raw streams, and the agent in each container."""
