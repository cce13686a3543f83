"""A policy for tests in which its values do not matter."""

from llm_sandbox_mcp.base.policy import Policy

POLICY = Policy(memory=1, cpus=1, pids=1, disk=1, files=1, file_size=1, cpu_time=1, timeout=30, grace=1, output=1)
