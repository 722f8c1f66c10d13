"""Webhook destination: rows as signed HTTP requests, each with an idempotency key."""

from resources.destinations.webhook.destination import Rules, WebhookDestination

__all__ = ["Rules", "WebhookDestination"]
