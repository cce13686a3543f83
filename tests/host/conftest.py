"""Package indexes for the tests of package managers."""

from tests.gateways import files as files
from tests.gateways import index as index
