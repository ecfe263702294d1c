"""Headers in place of those of LZ4 and zlib, for Verilator's FST writer."""

import random
import subprocess
import zlib

import pytest

from dxpu_sim.run import verilate

PROGRAM = r"""
#include <lz4.h>
#include <zlib.h>
#include <cstdio>
#include <vector>

// Compresses the standard input by the method with the initial of the argument.
int main(int, char** arguments) {
    std::vector<char> in, out;
    for (int c; (c = std::getchar()) != EOF;) in.push_back(static_cast<char>(c));
    uLongf length;
    if (arguments[1][0] == 'l') {
        out.resize(LZ4_compressBound(in.size()));
        length = LZ4_compress_default(in.data(), out.data(), in.size(), out.size());
    } else {
        out.resize(length = compressBound(in.size()));
        compress2(reinterpret_cast<Bytef*>(out.data()), &length,
                  reinterpret_cast<const Bytef*>(in.data()), in.size(), 9);
    }
    if (length > out.size()) return 1;
    std::fwrite(out.data(), 1, length, stdout);
}
"""
CHANCE = random.Random(1)
DATA = {
    "empty": b"", "one byte": b"a", "short": b"abc" * 4, "13 alike": bytes(13),
    "alike": bytes(70_000), "random": CHANCE.randbytes(70_000), "few": CHANCE.randbytes(40),
    "mixed": b"".join(CHANCE.choice([b"hello ", b"abc", bytes(300), CHANCE.randbytes(20)])
                      for _ in range(4000)),
}


@pytest.fixture(scope="module")
def compress(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fst")
    (folder / "program.cpp").write_text(PROGRAM)
    headers = verilate._FST[0].parent
    subprocess.run(["g++", "-Wall", "-Werror", "-std=gnu++20", f"-I{headers}", "program.cpp"],
                   cwd=folder, check=True)
    return lambda method, data: subprocess.run(
        [folder / "a.out", method], input=data, capture_output=True, check=True).stdout


def length(block, at, bits):
    """Length from four ``bits`` and the bytes from ``block[at]``; also the position behind."""
    more = bits == 15
    while more:
        bits += block[at]
        more = block[at] == 255
        at += 1
    return bits, at


def decompress(block):
    """Content of an LZ4 block."""
    out, at = bytearray(), 0
    while True:
        token = block[at]
        count, at = length(block, at + 1, token >> 4)
        out += block[at:at + count]
        at += count
        if at == len(block):
            assert not token & 15 and (count >= 5 or count == len(out))
            return bytes(out)
        distance = int.from_bytes(block[at:at + 2], "little")
        assert 0 < distance <= len(out)
        count, at = length(block, at + 2, token & 15)
        for _ in range(count + 4):
            out.append(out[-distance])


@pytest.mark.parametrize("name", DATA)
def test_lz4(name, compress):
    block = compress("lz4", DATA[name])
    assert decompress(block) == DATA[name]


def test_lz4_compresses(compress):
    assert len(compress("lz4", DATA["alike"])) < 300
    assert len(compress("lz4", DATA["mixed"])) < len(DATA["mixed"]) / 10


@pytest.mark.parametrize("name", DATA)
def test_zlib(name, compress):
    assert zlib.decompress(compress("zlib", DATA[name])) == DATA[name]
