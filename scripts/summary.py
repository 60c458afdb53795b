#!/usr/bin/env python3
"""Adds up the JUnit reports of a folder: skipped tests by reason, failed ones by name, and one closing line.

usage: summary.py FOLDER
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as xml


def skip_reason(case):
    """GoogleTest prints 'FILE:LINE: Skipped' and then what the test said; other programs say it last."""
    output = case.findtext("system-out") or ""
    found = re.search(r"(?:: Skipped|\[  SKIPPED \][^\n]*)\n(.+?)\n", output)
    if found and found[1].strip() and not found[1].startswith("["):
        return found[1].strip()
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def main(folder):
    passed, failed, skipped = 0, [], collections.defaultdict(list)
    for report in sorted(pathlib.Path(folder).glob("*.xml")):
        for case in xml.parse(report).getroot().iter("testcase"):
            name = f"{report.stem}: {case.get('name')}"
            if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
                failed.append(name)
            elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                skipped[skip_reason(case)].append(name)
            else:
                passed += 1
    count = sum(map(len, skipped.values()))
    print(f"\nSkipped tests: {count}")
    for reason, names in sorted(skipped.items()):
        print(f"  {len(names)}: {reason} ({names[0]}{', ...' if len(names) > 1 else ''})")
    if failed:
        print(f"Failed tests: {len(failed)}")
        for name in failed:
            print(f"  {name}")
    failures = pathlib.Path(folder, "failures")
    steps = failures.read_text().split() if failures.exists() else []
    if steps:
        print("Steps that failed (logs in build/results): " + ", ".join(steps))
    # A step may fail without a failed test, say when a program crashed before it listed any.
    count_failed = len(failed) or len(steps)
    closing = f"{passed} passed, {count_failed} failed, {count} skipped"
    pathlib.Path(folder, "closing_line").write_text(closing + "\n")
    print(closing)
    return 1 if count_failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
