#!/usr/bin/env python3
"""Checks that every room includes only the rooms above it, that the torch-free library's headers stay plain, and that
every kernel which is dispatched at run time has a part in the self-check of instruction sets.

A room is a folder under regard/. The table is that of docs/architecture.md. Exit 1 with one line per breach.
"""
import pathlib
import re
import sys

# What a room may use besides itself; what these use is theirs to use too.
USES = {
    "kernel": [],
    "attention": ["kernel"],
    "io": [],
    "text": ["io"],
    "autograd": ["attention"],
    "layer": ["autograd"],
    "model": ["layer", "io", "text"],
    "lens": ["model", "text"],
    "train": ["lens", "model", "text", "io"],
    "lab": ["train", "lens"],
    "web": ["lens", "model"],
}
WITHOUT_TORCH = {"kernel", "attention", "io", "text"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def reachable(room):
    found, todo = {room}, list(USES[room])
    while todo:
        next_room = todo.pop()
        if next_room not in found:
            found.add(next_room)
            todo += USES[next_room]
    return found


# Headers that cmake/install.cmake leaves out are the rooms' own.
INSTALL = (pathlib.Path(__file__).resolve().parent.parent / "cmake/install.cmake").read_text(encoding="utf-8")
LEFT_OUT = [re.compile(r.replace("\\\\", "\\")) for r in re.findall(r'REGEX "([^"]+)" EXCLUDE', INSTALL)] + [re.compile(r"-inl\.h$")]


def installed(path):
    return not any(pattern.search(path) for pattern in LEFT_OUT)


def breaches(root):
    for path in sorted(root.glob("regard/*/**/*")):
        if path.suffix not in (".h", ".cc", ".inc"):
            continue
        shown = path.relative_to(root)
        room = shown.parts[1]
        if room == "cli":  # the program may use everything
            continue
        if room not in USES:
            yield f"{shown}: the room {room} is not in the table of scripts/check_rooms.py"
            continue
        allowed = reachable(room)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match[1]
            first, _, rest = header.partition("/")
            if first == "regard" and rest.split("/")[0] not in allowed:
                yield f"{shown}:{number}: {room} may not include {header} (it may use {', '.join(sorted(allowed))})"
            if room in WITHOUT_TORCH and first in ("torch", "ATen", "c10"):
                yield f"{shown}:{number}: {room} is free of libtorch but includes {header}"
            if room in ("kernel", "attention") and first == "hwy" and path.suffix == ".h" and installed(f"/{shown}"):
                yield f"{shown}:{number}: a public header includes Highway ({header})"
            if room in ("kernel", "attention") and path.suffix == ".h" and first == "regard" and installed(f"/{shown}") and not installed(f"/{header}"):
                yield f"{shown}:{number}: an installed header includes {header}, which is not installed (cmake/install.cmake)"
            if header.startswith("../") or header.startswith("./"):
                yield f"{shown}:{number}: include by the path from the root, not {header}"


FUNCTION = re.compile(r"^\w[\w:<>&* ]* (\w+)\([^;{}]*\) \{\n(.*?)^\}", re.M | re.S)


def calls(text):
    """Names that indented lines call: definitions start at the margin."""
    return {name for line in re.findall(r"^ .*", text, re.M) for name in re.findall(r"(\w+)\(", line)}


def unchecked_kernels(root):
    """Functions that dispatch and that nothing calls which a self-check reaches."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(root.glob("regard/kernel/*.cc"))}
    functions = [(path, *found) for path, text in sources.items() for found in FUNCTION.findall(text)]
    reached = set().union(*(calls(text) for text in sources.values() if re.search(r"^bool \w*self_check\(\)", text, re.M)))
    for _ in functions:
        reached |= set().union(*(calls(body) for _, name, body in functions if name in reached))
    for path, name, body in functions:
        if "REGARD_DISPATCH(" in body and name not in reached:
            yield f"{path.relative_to(root)}: no self-check reaches {name}(), which runs on the instruction set in use"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(breaches(root)) + list(unchecked_kernels(root))
    for line in found:
        print(line)
    print(f"rooms: {len(found)} breaches" if found else "rooms: every include points upwards, every kernel checks itself")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
