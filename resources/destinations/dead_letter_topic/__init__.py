"""Write the dead letters of a destination to a topic, each exactly once (docs/adr/0068-dead-letters-in-a-topic.md)."""

from resources.destinations.dead_letter_topic.publisher import LetterTopic, Written

__all__ = ["LetterTopic", "Written"]
