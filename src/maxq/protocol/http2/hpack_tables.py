"""The tables of HPACK (RFC 7541): the static table (appendix A), and Huffman's code (appendix B) as an automaton.

The code is canonical: codes of one length follow each other in the order of the symbols, so the lengths say it all.
"""

from typing import Final

#: Entries 1 to 61.
STATIC: Final = (
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
)

#: Bits of the code of each byte.
_LENGTHS: Final = bytes.fromhex("""
    0d 17 1c 1c 1c 1c 1c 1c 1c 18 1e 1c 1c 1e 1c 1c
    1c 1c 1c 1c 1c 1c 1e 1c 1c 1c 1c 1c 1c 1c 1c 1c
    06 0a 0a 0c 0d 06 08 0b 0a 0a 08 0b 08 06 06 06
    05 05 05 06 06 06 06 06 06 06 07 08 0f 06 0c 0a
    0d 06 07 07 07 07 07 07 07 07 07 07 07 07 07 07
    07 07 07 07 07 07 07 07 08 07 08 0d 13 0d 0e 06
    0f 05 06 05 06 05 06 06 06 05 07 07 06 06 06 05
    06 07 06 05 05 06 07 07 07 07 07 0f 0b 0e 0d 1c
    14 16 14 14 16 16 16 17 16 17 17 17 17 17 18 17
    18 18 16 17 18 17 17 17 17 15 16 17 16 17 17 18
    16 15 14 16 16 17 17 15 17 16 16 18 15 16 17 17
    15 15 16 15 17 16 17 17 14 16 16 16 17 16 16 17
    1a 1a 14 13 16 17 16 19 1a 1a 1a 1b 1b 1a 18 19
    13 15 1a 1b 1b 1a 1b 18 15 15 1a 1a 1c 1b 1b 1b
    14 18 14 15 16 15 15 17 16 16 19 19 18 18 1a 17
    1a 1b 1a 1a 1b 1b 1b 1b 1b 1c 1b 1b 1b 1b 1b 1a
""")  # fmt: skip
_END: Final = 256  # the symbol for the end of the string, which never occurs in one
_END_LENGTH: Final = 30

EMITS: Final = 1  # bits of `Huffman.flags`
FAILS: Final = 2
MAY_END: Final = 4


def huffman_codes() -> list[tuple[int, int]]:
    """Return code and number of bits of each byte and, last, of the end."""
    lengths = [*_LENGTHS, _END_LENGTH]
    codes = [(0, 0)] * len(lengths)
    code = length = 0
    for symbol in sorted(range(len(lengths)), key=lambda symbol: (lengths[symbol], symbol)):
        code <<= lengths[symbol] - length
        length = lengths[symbol]
        codes[symbol] = (code, length)
        code += 1
    return codes


def huffman_automaton() -> tuple[bytes, bytes, bytes]:
    """Return three tables of 256 × 16 bytes, by 16 · state + the next four bits: the next state, the byte that was
    decoded, and flags. The string begins in state 0.

    EMITS: a byte was decoded. FAILS: these bits stand for the end. MAY_END: the string may end here, because what is
    left are fewer than eight bits, all of them 1.
    """
    children: list[list[int]] = [[-1, -1]]  # a state, or −2 − symbol
    padding = [0]
    for symbol, (code, length) in enumerate(huffman_codes()):
        state = 0
        for place in range(length - 1, 0, -1):
            bit = code >> place & 1
            if children[state][bit] < 0:
                children[state][bit] = len(children)
                children.append([-1, -1])
            state = children[state][bit]
            if symbol == _END and length - place < 8:
                padding.append(state)
        children[state][code & 1] = -2 - symbol
    ends = set(padding)
    following, symbols, flags = bytearray(), bytearray(), bytearray()
    for first in range(len(children)):
        for bits in range(16):
            state, symbol, flag = first, 0, 0
            for place in (3, 2, 1, 0):
                state = children[state][bits >> place & 1]
                if state < 0:
                    symbol = -2 - state
                    flag |= FAILS if symbol == _END else EMITS
                    state = 0
                    if symbol == _END:
                        symbol = 0
                        break
            following.append(state)
            symbols.append(symbol)
            flags.append(flag | (MAY_END if state in ends else 0))
    return bytes(following), bytes(symbols), bytes(flags)
