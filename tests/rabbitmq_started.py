"""A RabbitMQ server for tests: the one that the demo starts."""

from inturn.demo.rabbitmq_server import RabbitServer, missing, rabbitmq

__all__ = ["RabbitServer", "missing", "rabbitmq"]
