"""What callgrind wrote: own instructions of each crate, and runs of programs."""

import collections
import re

# One of these is called once for each run of a program.
TRANSACTION = {"weft_program::interpreter::begin", "weft_program::interpreter::begin_with_keys"}


def crate(symbol):
    """Whose code it is, by the first crate that a symbol names."""
    if symbol.startswith("0x"):
        return "machine code"
    found = re.search(r"\bweft_(\w+?)::", symbol)
    return found.group(1) if found else "libraries"


def parse(text):
    """Own instructions by crate, and how many transactions there were, of callgrind's output."""
    names, own, calls = {}, collections.Counter(), 0

    def name(text):
        number, _, rest = text.partition(" ")
        return names.setdefault(number, rest) if rest else names.get(number, number)

    function = callee = ""
    is_call = False
    for line in text.splitlines():
        if line.startswith("fn="):
            function = name(line[3:])
        elif line.startswith("cfn="):
            callee = name(line[4:])
        elif line.startswith("calls="):
            is_call = True
            if callee.split("'")[0] in TRANSACTION:
                calls += int(line[6:].split()[0])
        elif re.match(r"[-+*\d]\S* \d+$", line):
            if not is_call:
                own[crate(function)] += int(line.split()[1])
            is_call = False
    return own, calls
