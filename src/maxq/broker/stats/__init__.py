"""What the broker counts: per topic, group, queue and cluster, with minute, hour and day views."""
