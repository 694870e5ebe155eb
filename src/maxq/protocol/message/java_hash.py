"""Java's `String.hashCode`, which tags, index keys, lock stripes and client ids are made of."""


def java_hash(text: str) -> int:
    """Compute `h = 31·h + c` over UTF-16 code units, wrapped to a signed 32-bit integer.

    Source:
        java.lang.String.hashCode. `polygenelubricants` hashes to −2147483648.
    """
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value
