"""What users say: options of sources and sinks, parsed and checked."""
