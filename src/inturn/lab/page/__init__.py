"""The lab's page: one HTML file that compares the designs, with pictures, and opens without a network."""

from inturn.lab.page.audit_link import AuditLink
from inturn.lab.page.document import render

__all__ = ["AuditLink", "render"]
