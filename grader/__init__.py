"""Ranklings: grade distributed-training exercises on real ranks."""

__version__ = "0.1.0"
