"""The communicator, its transport over process groups, and the byte ledger."""

from commeff.communicator.communicator import Communicator, Handle
from commeff.communicator.context import Context
from commeff.communicator.ledger import Entry, Ledger
from commeff.communicator.unbilled import barrier, broadcast, observe, post_observe
from commeff.communicator.views import view
from commeff.communicator.wire.transport import Transport

__all__ = [
    "Communicator",
    "Context",
    "Entry",
    "Handle",
    "Ledger",
    "Transport",
    "barrier",
    "broadcast",
    "observe",
    "post_observe",
    "view",
]
