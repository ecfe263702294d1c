"""dxpu_tools.memory_init: memories begin with what they began with before."""

import random
import re

from dxpu_tools.memory_init import as_loops

LOOP = re.compile(r" *for \(int i = (\d+); i <= (\d+); i\+\+\) (\S+ ?)\[i\] = (\S+);")


def lines(name, values):
    return [f"    {name}[{at}] = 8'h{value:02x};" for at, value in values]


def unrolled(text):
    """The text with every loop written out."""
    result = []
    for line in text.split("\n"):
        if match := LOOP.fullmatch(line):
            first, last, name, value = match.groups()
            result += [f"    {name}[{n}] = {value};" for n in range(int(first), int(last) + 1)]
        else:
            result.append(line)
    return "\n".join(result)


def test_a_memory_of_equal_words_is_one_loop():
    text = "\n".join(["  initial begin", *lines("memory", ((n, 0) for n in range(512))), "  end"])
    assert as_loops(text) == ("  initial begin\n"
                              "    for (int i = 0; i <= 511; i++) memory[i] = 8'h00;\n  end")


def test_every_word_keeps_its_value():
    rng, made = random.Random(1), 0
    for _ in range(200):
        text = ["module top(a);", "  initial begin"]
        for _ in range(6):
            # Names of Yosys may be escaped, which a space ends.
            at, name = 0, rng.choice(["a", r"\a.b ", "memory"])
            for _ in range(rng.randrange(4)):
                value, count, at = rng.randrange(2), rng.randrange(40), at + rng.randrange(2)
                text += lines(name, ((n, value) for n in range(at, at + count)))
                at += count
        text = "\n".join([*text, "  end", "endmodule", ""])
        assert unrolled(as_loops(text)) == text
        made += len(LOOP.findall(as_loops(text)))
    assert made > 200
