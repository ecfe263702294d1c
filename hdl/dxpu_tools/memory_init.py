"""Initial values of memories in generated Verilog."""

import re

__all__ = ["as_loops"]

#: Shortest run of equal values that becomes a loop.
MIN_RUN = 16
LINE = re.compile(r"( +)(\S+ ?)\[(\d+)\] = (\d+'h[0-9a-f]+);")


def as_loops(text: str) -> str:
    """SystemVerilog with a loop for each run of equal values, instead of a line for each word.

    A memory of 32,768 words would be as many statements, which take Verilator and the C++ compiler
    longer than the logic. The bench of ``dxpu faults`` has 99,000 lines with loops, 218,000
    without.
    """
    lines, run = [], []

    def end():
        if len(run) < MIN_RUN:
            lines.extend(match[0] for match in run)
        else:
            indent, name, first, value = run[0].groups()
            lines.append(f"{indent}for (int i = {first}; i <= {run[-1][3]}; i++) "
                         f"{name}[i] = {value};")
        run.clear()

    for line in text.split("\n"):
        match = LINE.fullmatch(line)
        if run and not (match and (match[2], match[4]) == (run[0][2], run[0][4])
                        and int(match[3]) == int(run[-1][3]) + 1):
            end()
        if match:
            run.append(match)
        else:
            lines.append(line)
    end()
    return "\n".join(lines)
