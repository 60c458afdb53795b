#!/usr/bin/env python3
"""A picture of what a command prints in a terminal of 80 columns, in colour.

    scripts/terminal_picture.py OUT.png 'regard look "..." --token it' [--columns 80] [--from LINE] [--to LINE]

The command runs in tmux, whose screen is drawn cell by cell in a headless Chromium: what is misaligned in a terminal is
misaligned in the picture. Needs tmux, chromium and a font with the characters (fonts-dejavu-core, fonts-noto-cjk).
"""
import argparse
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata

CELL, LINE, SIZE = 9, 19, 15  # pixels of a cell and of a line, size of the letters
PAPER, INK = (24, 26, 32), (222, 224, 228)
BASIC = [(0, 0, 0), (205, 49, 49), (13, 188, 121), (229, 229, 16), (36, 114, 200), (188, 63, 188), (17, 168, 205), (229, 229, 229),
         (102, 102, 102), (241, 76, 76), (35, 209, 139), (245, 245, 67), (59, 142, 234), (214, 112, 214), (41, 184, 219), (255, 255, 255)]


def cube(number):
    if number < 16:
        return BASIC[number]
    if number >= 232:
        return (8 + 10 * (number - 232),) * 3
    number -= 16
    return tuple(0 if part == 0 else 55 + 40 * part for part in (number // 36, number // 6 % 6, number % 6))


def run(command, columns):
    """The screen of the command's terminal with its escape sequences, line by line."""
    tmux = ["tmux", "-L", "regard-picture-%d" % os.getpid(), "-f", "/dev/null"]
    folder = tempfile.mkdtemp(prefix="regard-picture-")
    done = os.path.join(folder, "done")
    shell = "clear; %s; touch %s; sleep 1000" % (command, done)
    environment = dict(os.environ, LC_ALL="C.UTF-8", COLORTERM="truecolor")
    subprocess.run(tmux + ["new-session", "-d", "-x", str(columns), "-y", "200", "bash", "-c", shell], check=True, env=environment)
    try:
        for _ in range(1200):
            if os.path.exists(done):
                break
            time.sleep(0.1)
        else:
            sys.exit("the command did not end within two minutes")
        time.sleep(0.3)
        screen = subprocess.run(tmux + ["capture-pane", "-e", "-p"], check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run(tmux + ["kill-server"], check=False)
        shutil.rmtree(folder)
    return screen.rstrip("\n").split("\n")


class Style:
    def __init__(self):
        self.set([0])

    def set(self, codes):
        codes = list(codes)
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.ink = self.paper = None
                self.bold = self.dim = self.line = False
            elif code in (1, 2, 4):
                setattr(self, {1: "bold", 2: "dim", 4: "line"}[code], True)
            elif code == 22:
                self.bold = self.dim = False
            elif code == 24:
                self.line = False
            elif code in (38, 48):
                kind = codes.pop(0)
                colour = cube(codes.pop(0)) if kind == 5 else tuple(codes.pop(0) for _ in range(3))
                setattr(self, "ink" if code == 38 else "paper", colour)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.ink = BASIC[code - 30 if code < 90 else code - 82]
            elif 40 <= code <= 47:
                self.paper = BASIC[code - 40]
            elif code in (39, 49):
                setattr(self, "ink" if code == 39 else "paper", None)

    def css(self):
        ink = self.ink or INK
        if self.dim:
            ink = tuple((3 * a + 2 * b) // 5 for a, b in zip(ink, self.paper or PAPER))
        out = "color:rgb%s" % (ink,)
        if self.bold:
            out += ";font-weight:bold"
        if self.line:
            out += ";text-decoration:underline"
        return out


def width(character):
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def draw(lines, columns):
    style, out = Style(), []
    for row, line in enumerate(lines):
        column = 0
        for escape, character in re.findall(r"\033\[([0-9;]*)m|(.)", line):
            if not character:
                style.set(int(code or 0) for code in escape.split(";"))
                continue
            cells = width(character)
            if style.paper:
                out.append('<i style="left:%dpx;top:%dpx;width:%dpx;background:rgb%s"></i>' %
                           (CELL * column, LINE * row, CELL * cells, style.paper))
            if character != " " or style.line:
                out.append('<b style="left:%dpx;top:%dpx;width:%dpx;%s">%s</b>' %
                           (CELL * column, LINE * row, CELL * cells, style.css(), html.escape(character)))
            column += cells
    return """<!doctype html><meta charset="utf-8"><style>
body {margin: 0; background: rgb%s} div {position: absolute; left: 12px; top: 10px}
i, b {position: absolute; height: %dpx; font: normal %dpx/%dpx "DejaVu Sans Mono", "Noto Sans Mono CJK SC", "Noto Sans CJK SC", monospace;
      text-align: center; white-space: pre}</style><div>%s</div>""" % (PAPER, LINE, SIZE, LINE, "".join(out))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("command")
    parser.add_argument("--columns", type=int, default=80)
    parser.add_argument("--from", dest="first", type=int, default=1, help="first line to draw, from 1")
    parser.add_argument("--to", dest="last", type=int, default=None)
    options = parser.parse_args()
    lines = run(options.command, options.columns)[options.first - 1:options.last]
    with tempfile.TemporaryDirectory(prefix="regard-picture-") as folder:
        page = os.path.join(folder, "screen.html")
        with open(page, "w", encoding="utf-8") as file:
            file.write(draw(lines, options.columns))
        chromium = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
        if chromium is None:
            sys.exit("chromium is not installed (apt-get install chromium)")
        size = "%d,%d" % (CELL * options.columns + 24, LINE * len(lines) + 20)
        subprocess.run([chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=" + size,
                        "--user-data-dir=" + os.path.join(folder, "profile"), "--screenshot=" + os.path.abspath(options.out), "file://" + page],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print("%s: %d lines, %d bytes" % (options.out, len(lines), os.path.getsize(options.out)))


if __name__ == "__main__":
    main()
