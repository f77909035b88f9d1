"""How results are measured. The only package that sees held-out items."""

from coterie.protocol.canary import CanaryWatch
from coterie.protocol.prepare import Prepared, prepare
from coterie.protocol.rules import PAPER_WARNING, Protocol, resolve

__all__ = ["PAPER_WARNING", "CanaryWatch", "Prepared", "Protocol", "prepare", "resolve"]
