"""Histories of clients: record each call and its answer, then check that a correct queue could have answered so.

from inturn.testing.history import Recorder, check, read
"""

from inturn.testing.history.anomaly import Anomaly, AnomalyKind
from inturn.testing.history.check import check, check_or_raise
from inturn.testing.history.events import (
    OK,
    UNASKED,
    UNKNOWN,
    AppliedEffect,
    ClientCall,
    Event,
    ReceiveCall,
    ReceivedMessage,
    SendCall,
    SettleCall,
    figures,
    read,
)
from inturn.testing.history.recorder import Recorder

__all__ = [
    "OK",
    "UNASKED",
    "UNKNOWN",
    "Anomaly",
    "AnomalyKind",
    "AppliedEffect",
    "ClientCall",
    "Event",
    "ReceiveCall",
    "ReceivedMessage",
    "Recorder",
    "SendCall",
    "SettleCall",
    "check",
    "check_or_raise",
    "figures",
    "read",
]
