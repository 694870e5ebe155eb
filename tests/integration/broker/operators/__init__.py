"""What operators ask for and see: administration, metrics, quotas, the manual."""
