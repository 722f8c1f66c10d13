"""Take over a position from another loader: judge what it gives, and make the first lanes from it."""
