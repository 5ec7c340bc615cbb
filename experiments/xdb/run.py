#!/usr/bin/env python3
"""X-DB, figure 9: a compaction unit over KV length, against one CPU thread. See README.md beside this."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import runs  # noqa: E402

KEY_BYTES = 16


def points(records, compression, name, metric):
    """(KV bytes, value) of one contender, from cases `value=V COMPRESSION NAME ...`."""
    found = []
    for record in records:
        value, codec, contender = record["case"].split(" ", 2)
        if (codec, record["metric"]) == (compression, metric) and contender.startswith(name):
            found.append((KEY_BYTES + int(value.removeprefix("value=")), record["value"]))
    return found


def main():
    options = runs.arguments(__doc__)
    lab = runs.Lab(options)
    here = pathlib.Path(__file__).resolve().parent
    values = "32,512" if options.quick else "16,32,64,128,256,512,1024,2048"
    size = "--bytes 60000 --seconds 0.01 --rounds 1" if options.quick else "--seconds 0.3 --rounds 5"
    # Each compression by itself: contenders of one figure see the same minutes of the machine.
    for compression in ["none", "lz4"]:
        figure = f"9-{compression}"
        if not lab.wants(figure):
            continue
        lines, entries = {}, {}
        for width in [8, 32]:
            unit = "cpu,runtime,model" if width == 8 else "model"
            words = f"compaction --ways 4 --decoders 2,4 --width {width} --unit {unit} {size}"
            records = lab.run(figure, f"{words} --value-bytes {values} --compression {compression}")
            contenders = {f"{n} decoders, {width} B/cycle": f"model {n} decoders" for n in [2, 4]}
            if width == 8:
                contenders = {"CPU thread": "cpu", **contenders}
            for line, name in contenders.items():
                rates = points(records, compression, name, "throughput")
                lines[line] = [(x, y / 1e6) for x, y in rates]
                entries[line] = [(x, y / 1e6) for x, y in points(records, compression, name, "entries")]
        if not options.quick:
            title = f"4 runs, {compression}; units simulated at 200 MHz"
            for name, unit, drawn in [("", "MB/s", lines), ("-entries", "M entries/s", entries)]:
                path = here / f"figure-{figure}{name}.svg"
                runs.draw(path, title, "bytes of key and value", unit, drawn)
    lab.keep()


if __name__ == "__main__":
    main()
