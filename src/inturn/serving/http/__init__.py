"""The HTTP server of the SQS endpoint: HTTP/1.1 with bounds on what clients may hold."""
