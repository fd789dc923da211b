"""The tracker: it hands out remote boards to those who ask for them, one job at a time.

docs/tracker.md says how to use it, docs/rpc-protocol.md defines its messages.
"""
