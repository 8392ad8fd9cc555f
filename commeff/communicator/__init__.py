"""The communicator, its transport over process groups, and the byte ledger."""

from commeff.communicator.communicator import Communicator, Handle
from commeff.communicator.ledger import Entry, Ledger
from commeff.communicator.wire.transport import Transport

__all__ = ["Communicator", "Entry", "Handle", "Ledger", "Transport"]
