// Attention, recomputed from what the page carries: weight = exp(score - lse), score = scale * (q . k).

class ExactHead {
  constructor(text, carried, q, k, lse) {
    Object.assign(this, {text, q, k, lse, size: carried.size, scale: carried.scale});
    this.exact = true;
  }

  dot(i, j) {
    const {q, k, size} = this;
    let sum = 0;
    for (let d = 0, a = i * size, b = j * size; d < size; d++) sum += q[a + d] * k[b + d];
    return sum;
  }
  score(i, j) { return this.scale * this.dot(i, j); }
  weight(i, j) { return this.text.sees(i, j) ? Math.exp(this.score(i, j) - this.lse[i]) : 0; }

  // q.k as its parts.
  parts(i, j) {
    const {q, k, size} = this;
    let qq = 0, kk = 0;
    for (let d = 0; d < size; d++) {
      qq += q[i * size + d] ** 2;
      kk += k[j * size + d] ** 2;
    }
    const dot = this.dot(i, j);
    return {dot, qNorm: Math.sqrt(qq), kNorm: Math.sqrt(kk), cosine: qq && kk ? dot / Math.sqrt(qq * kk) : 0};
  }
}

// A head of which only the block maps are here. Where a block is one token, they still give every weight
// (rounded to 16 bits); else no single weight is known.
class BlockHead {
  constructor(text, layer, head) {
    this.text = text;
    this.exact = false;
    this.single = text.blockTokens === 1;
    this.mean = text.blocksOf(layer, head).mean;
  }
  weight(i, j) { return this.text.sees(i, j) ? this.mean[i * this.text.blocks + j] : 0; }
}

function headIn(text, layer, head) { return text.exactHead(layer, head) || new BlockHead(text, layer, head); }

// What rows and columns stand for: words or tokens, special ones left out or not.
class Units {
  constructor(text, words, hide) {
    const all = words ?
        text.words :
        text.tokens.map(
            (t, i) => ({text: t.text, first: i, count: 1, special: t.special, punctuation: t.punctuation}));
    this.words = words;
    this.hide = hide;
    this.list = hide ? all.filter((unit) => !unit.special) : all;
    this.count = this.list.length;
    this.hidden = hide ? text.tokens.flatMap((t, i) => t.special ? [i] : []) : [];
    this.unitOf = new Int32Array(text.length).fill(-1);
    this.list.forEach((unit, u) => this.unitOf.fill(u, unit.first, unit.first + unit.count));
    // The first token of a causal model is a resting place, like a special token.
    this.sinkToken = text.causal ? 0 : -1;
  }
  isSink(u) {
    const unit = this.list[u];
    return unit.special || unit.first === this.sinkToken;
  }
}

// The weights of one head between units: keys of a word are summed, queries averaged, so that rows still sum
// to 1; hidden special tokens leave their weight to the others.
class Field {
  constructor(head, units) {
    this.head = head;
    this.units = units;
    this.text = head.text;
    this.known = head.exact || head.single;
    this.kept = new Map();
  }

  // Mean over a unit's queries of the weight on tokens [first, first + count).
  mass(row, first, count) {
    let sum = 0;
    for (let i = row.first; i < row.first + row.count; i++) {
      for (let j = first; j < first + count; j++) sum += this.head.weight(i, j);
    }
    return sum / row.count;
  }

  // What a row's weights are multiplied with because special tokens are hidden.
  keep(r) {
    if (!this.units.hidden.length) return 1;
    if (!this.kept.has(r)) {
      let lost = 0;
      for (const j of this.units.hidden) lost += this.mass(this.units.list[r], j, 1);
      this.kept.set(r, lost < 1 - 1e-6 ? 1 / (1 - lost) : 0);
    }
    return this.kept.get(r);
  }

  weight(r, c) {
    const column = this.units.list[c];
    return this.mass(this.units.list[r], column.first, column.count) * this.keep(r);
  }

  // The pair of tokens with the largest weight inside a cell, as [query, key].
  strongest(r, c) {
    const row = this.units.list[r], column = this.units.list[c];
    let best = [row.first, column.first], largest = -1;
    for (let i = row.first; i < row.first + row.count; i++) {
      for (let j = column.first; j < column.first + column.count; j++) {
        const weight = this.head.weight(i, j);
        if (weight > largest) {
          largest = weight;
          best = [i, j];
        }
      }
    }
    return best;
  }
  score(r, c) {
    const [i, j] = this.strongest(r, c);
    return this.head.score(i, j);
  }
  visible(r, c) {
    const row = this.units.list[r], column = this.units.list[c];
    for (let i = row.first + row.count - 1; i >= row.first; i--) {
      for (let j = column.first; j < column.first + column.count; j++)
        if (this.text.sees(i, j)) return true;
    }
    return false;
  }

  row(r) { return Float64Array.from({length: this.units.count}, (_, c) => this.weight(r, c)); }
  column(c) { return Float64Array.from({length: this.units.count}, (_, r) => this.weight(r, c)); }

  // Cells [r0, r1) x [c0, c1), row by row; NaN where the mask lets nothing through.
  tile(r0, r1, c0, c1, quantity) {
    const width = c1 - c0;
    const out = new Float32Array((r1 - r0) * width);
    for (let r = r0; r < r1; r++) {
      for (let c = c0; c < c1; c++) {
        out[(r - r0) * width + c - c0] = !this.visible(r, c) ? NaN :
            quantity === 'score'                             ? this.score(r, c) :
                                                               this.weight(r, c);
      }
    }
    return out;
  }
}
