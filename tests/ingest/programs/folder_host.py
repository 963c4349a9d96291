"""A host of a folder, to be killed: python folder_host.py DATABASE FOLDER."""

import sys

import inturn
from inturn.ingest import FolderSource, Ingest, MessageMapping

address, folder = sys.argv[1:]
with inturn.open(address) as db:
    mapping = MessageMapping(group="body.account", revision="body.n")
    Ingest(FolderSource(folder), db.queue("payments"), mapping, name="files", batch=7, lease_s=0.2).run(
        until="caught up"
    )
