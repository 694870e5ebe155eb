"""Stories of messages with a delay level or a time, while clocks jump, disks fail and machines lose their power."""
