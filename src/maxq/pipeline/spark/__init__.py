"""What has to do with Spark itself: where it starts from, its Java, its workers, its errors."""
