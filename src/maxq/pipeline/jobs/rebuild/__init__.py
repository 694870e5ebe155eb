"""The rebuild: ConsumeQueues and IndexFiles made anew from the log by Spark."""
