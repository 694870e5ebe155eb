"""Static topics: requests about global queues become requests about physical ones."""
