"""Communication: triggers, participants, messages and channels, replicas, and servers that aggregate."""
