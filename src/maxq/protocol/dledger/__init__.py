"""DLedger's frames: messages between members, their codec, their JSON."""
