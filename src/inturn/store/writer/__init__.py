"""The writer: the commands of many callers in one transaction, and the callers that wait for it."""
