"""Files made wrong: bytes changed at random, also inside archives: from outside only a checksum would break."""

import gzip
import io
import json
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable

__all__ = ["mutated"]

Parts = tuple[list[bytes], Callable[[list[bytes]], bytes]]
"""what is inside, and how it is put together again"""
NUMBERS = (0, 1, 2, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
TEXTS = (
    b"-1",
    b"1e999",
    b"nan",
    b"-0",
    b"99999999999999999999",
    b"1e-400",
    b"",
    b"\0",
    b"../../x",
    b"/x",
    b'"',
    b",",
    b"\n",
)
WORDS = (
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"[" * 3000,
    b"{" * 3000,
    b"\x1b[2J",
    b"[/x]",
    b"$a_$",
    b"null",
    b"true",
    b"[]",
    b"{}",
)


def mutated(content: bytes, other: bytes, unpack: str, chance: random.Random) -> bytes:
    """Changed in one to four places; `other` is a second file of the kind, to splice with."""
    if unpack and chance.random() < 0.8:
        try:
            parts, pack = UNPACK[unpack](content)
            if parts:
                i = chance.randrange(len(parts))
                inner = "gzip" if unpack == "tar.gz" else ""
                parts[i] = mutated(parts[i], other, inner, chance)
                return pack(parts)
        except Exception:  # it has been changed before: so as bytes
            pass
    for _ in range(chance.choice((1, 1, 2, 4))):
        content = chance.choice(CHANGES)(content, other, chance)
    return content


def _flip(content: bytes, other: bytes, chance: random.Random) -> bytes:
    if not content:
        return b"\0"
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]


def _number(content: bytes, other: bytes, chance: random.Random) -> bytes:
    """An interesting one, over what is there."""
    width, order = chance.choice((1, 2, 4, 8)), chance.choice("<>")
    new = struct.pack(order + "Q", chance.choice(NUMBERS) % 2 ** (8 * width))
    new = new[:width] if order == "<" else new[-width:]
    at = chance.randrange(max(1, len(content) - width + 1))
    return content[:at] + new + content[at + width :]


def _text(content: bytes, other: bytes, chance: random.Random) -> bytes:
    """In place of a number that is written out."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", content[:100_000]))
    if not found:
        return _insert(content, other, chance)
    spot = chance.choice(found)
    return (
        content[: spot.start()] + chance.choice((*TEXTS, str(chance.choice(NUMBERS)).encode())) + content[spot.end() :]
    )


def _insert(content: bytes, other: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(content))
    new = chance.choice((*TEXTS, *WORDS, chance.randbytes(chance.choice((1, 4, 64)))))
    return content[:at] + new + content[at:]


def _cut(content: bytes, other: bytes, chance: random.Random) -> bytes:
    at, length = chance.randint(0, len(content)), chance.choice((1, 2, 16, 512, len(content)))
    return content[:at] + content[at + length :]


def _repeat(content: bytes, other: bytes, chance: random.Random) -> bytes:
    at, length = chance.randint(0, len(content)), chance.choice((1, 8, 100, 512))
    return content[:at] + content[at : at + length] * chance.choice((2, 3, 40)) + content[at + length :]


def _splice(content: bytes, other: bytes, chance: random.Random) -> bytes:
    return content[: chance.randint(0, len(content))] + other[chance.randint(0, len(other)) :]


CHANGES = (_flip, _flip, _number, _number, _text, _text, _insert, _cut, _repeat, _splice)


def _gzip(content: bytes) -> Parts:
    return [gzip.decompress(content)], lambda parts: gzip.compress(parts[0], 1, mtime=0)


def _tar(content: bytes) -> Parts:
    """Headers with their checksums made right again."""

    def pack(parts: list[bytes]) -> bytes:
        whole = bytearray(parts[0])
        at = 0
        while at + 512 <= len(whole):
            if whole[at + 257 : at + 262] == b"ustar":
                whole[at + 148 : at + 156] = b" " * 8
                whole[at + 148 : at + 156] = b"%06o\0 " % sum(whole[at : at + 512])
            at += 512
        return gzip.compress(bytes(whole), 1, mtime=0)

    return [gzip.decompress(content)], pack


def _zip(content: bytes) -> Parts:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        parts = [archive.read(member) for member in members]

    def pack(parts: list[bytes]) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for member, part in zip(members, parts, strict=True):
                archive.writestr(member.filename, part)
        return out.getvalue()

    return parts, pack


def _safetensors(content: bytes) -> Parts:
    """The tree in the header, the header, the tensors; with a checksum that is right."""
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    tree = header["__metadata__"]["tree"].encode()

    def pack(parts: list[bytes]) -> bytes:
        tree, body = parts
        total = zlib.crc32(body, zlib.crc32(tree))  # tensors lie in the order of their names, without gaps
        header["__metadata__"] = {"tree": tree.decode("utf8", "replace"), "crc32": str(total)}
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + body

    return [tree, content[8 + length :]], pack


UNPACK: dict[str, Callable[[bytes], Parts]] = {"gzip": _gzip, "tar.gz": _tar, "zip": _zip, "safetensors": _safetensors}
