// Exact values of a head in tiles, computed as they come into sight, a few milliseconds in each frame.

const tileSize = 64;
const tilesKept = 4096;  // 64 MB of values

class Tiles {
  constructor(field, quantity, ready) {
    Object.assign(this, {field, quantity, ready});
    this.done = new Map();
    this.wanted = [];
    this.running = false;
  }

  get(row, column) { return this.done.get(row * 65536 + column); }

  // Asks for tiles [row, column]; those of earlier requests that are not asked for again are forgotten.
  ask(list) {
    // From the middle outwards.
    const middle =
        list.length ? [0, 1].map((axis) => (list[0][axis] + list[list.length - 1][axis]) / 2) : [0, 0];
    const away = (tile) => Math.hypot(tile[0] - middle[0], tile[1] - middle[1]);
    this.wanted = list.sort((a, b) => away(a) - away(b));
    if (list.length && !this.running) {
      this.running = true;
      this.step();
    }
  }

  step() {
    const until = performance.now() + 8;
    let made = 0;
    while (this.wanted.length && (made === 0 || performance.now() < until)) {
      const [row, column] = this.wanted.shift();
      const {count} = this.field.units;
      const r0 = row * tileSize, c0 = column * tileSize;
      const r1 = Math.min(count, r0 + tileSize), c1 = Math.min(count, c0 + tileSize);
      if (this.done.size >= tilesKept) this.done.delete(this.done.keys().next().value);
      this.done.set(
          row * 65536 + column, {r0, r1, c0, c1, values: this.field.tile(r0, r1, c0, c1, this.quantity)});
      made++;
    }
    if (made) this.ready();
    if (this.wanted.length)
      setTimeout(() => this.step(), 0);
    else
      this.running = false;
  }
}

// The values of a window of the map, `step` cells squared gathered into one. Tiles that are not there yet,
// and all of a head without exact weights, are filled from the block maps.
function gather(field, tiles, window, step, how, exact) {
  const {text, units} = field;
  const rows = Math.ceil((window.r1 - window.r0) / step), columns = Math.ceil((window.c1 - window.c0) / step);
  const values = new Float32Array(rows * columns).fill(NaN);
  const missing = [];
  let shares = null;
  if (how === 'mean' && step > 1) shares = new Uint32Array(rows * columns);
  for (let tr = Math.floor(window.r0 / tileSize); tr * tileSize < window.r1; tr++) {
    for (let tc = Math.floor(window.c0 / tileSize); tc * tileSize < window.c1; tc++) {
      const tile = exact ? tiles.get(tr, tc) : undefined;
      if (exact && !tile) missing.push([tr, tc]);
      const r0 = Math.max(window.r0, tr * tileSize), r1 = Math.min(window.r1, (tr + 1) * tileSize);
      const c0 = Math.max(window.c0, tc * tileSize), c1 = Math.min(window.c1, (tc + 1) * tileSize);
      if (tile) {
        const width = tile.c1 - tile.c0;
        for (let r = r0; r < r1; r++) {
          const out = Math.floor((r - window.r0) / step) * columns;
          for (let c = c0; c < c1; c++) {
            const value = tile.values[(r - tile.r0) * width + c - tile.c0];
            if (value !== value) continue;
            const at = out + Math.floor((c - window.c0) / step);
            const before = values[at];
            if (before !== before)
              values[at] = value;
            else if (shares)
              values[at] += value;
            else if (value > before)
              values[at] = value;
            if (shares) shares[at]++;
          }
        }
      } else if (tiles.quantity === 'weight') {
        const map = text.blocksOf(field.layer, field.number)[how];
        for (let r = r0; r < r1; r += step - (r - window.r0) % step) {
          const out = Math.floor((r - window.r0) / step) * columns;
          const i = units.list[r].first, lastRow = units.list[r].first + units.list[r].count - 1;
          const block = Math.floor(i / text.blockTokens) * text.blocks;
          for (let c = c0; c < c1; c += step - (c - window.c0) % step) {
            const j = units.list[c].first;
            if (text.causal && j > lastRow) continue;
            values[out + Math.floor((c - window.c0) / step)] = map[block + Math.floor(j / text.blockTokens)];
          }
        }
      }
    }
  }
  if (shares)
    for (let at = 0; at < values.length; at++)
      if (shares[at]) values[at] /= shares[at];
  return {values, rows, columns, missing};
}
