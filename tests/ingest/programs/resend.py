"""A resend of rejected records, to be killed: python resend.py DATABASE."""

import sys

import inturn
from inturn.ingest import FolderSource, IntakeRule, MessageMapping, SourceControl
from inturn.ingest import limits as source_limits

source_limits.INGEST_RECORDS = 7  # type: ignore[misc] - so that there are several batches
with inturn.open(sys.argv[1]) as db:
    mapping = MessageMapping(group="body.account", revision="body.n")
    intake = IntakeRule.for_source(FolderSource("."), mapping, name="bank", queue="payments")
    SourceControl(db, "bank").resend(intake)
