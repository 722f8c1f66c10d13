"""An address as a destination: rows as signed requests, each with a key by which the receiver knows it again."""

from resources.destinations.webhook.destination import Rules, WebhookDestination

__all__ = ["Rules", "WebhookDestination"]
