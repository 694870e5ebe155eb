"""Messages with a delivery time (timer messages): what the broker does about store/timer."""
