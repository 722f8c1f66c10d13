"""Decode the values that paths such as `user::name` select."""
