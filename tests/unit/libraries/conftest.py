"""Package indexes for the tests of the gateway."""

from tests.gateways import files as files
from tests.gateways import index as index
from tests.gateways import stranger as stranger
