// The page's data: one JSON block, and arrays as base64 in blocks of their own, decoded when first asked for.

const byId = (id) => document.getElementById(id);

function bytesOf(id) {
  const element = byId(id);
  const text = element.textContent;
  element.remove();  // its text is not needed again
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

let halfTable = null;
function halfToFloat(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
function floatsOf(id, type) {
  const bytes = bytesOf(id);
  if (type === 'f32') return new Float32Array(bytes.buffer, 0, bytes.length >> 2);
  if (!halfTable) halfTable = Float32Array.from({length: 65536}, (_, bits) => halfToFloat(bits));
  const bits = new Uint16Array(bytes.buffer, 0, bytes.length >> 1);
  const floats = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) floats[i] = halfTable[bits[i]];
  return floats;
}

// One text with its tokens, words, heads and arrays.
class Text {
  constructor(index, data) {
    Object.assign(this, data);
    this.index = index;
    this.tokens = data.tokens.map(
        ([word, flags, gap]) => ({text: word, special: (flags & 1) > 0, punctuation: (flags & 2) > 0, gap}));
    this.words = data.words.map(
        ([word, flags, first, count]) =>
            ({text: word, first, count, special: (flags & 1) > 0, punctuation: (flags & 2) > 0}));
    this.length = this.tokens.length;
    this.headOf = new Map(data.grid.map((head) => [head.layer + '.' + head.head, head]));
    this.carriedOf = new Map(data.carried.map((head) => [head.layer + '.' + head.head, head]));
    // Is every single weight of every head here, exactly or rounded?
    this.everyWeight = data.carried.length === data.grid.length || data.blockTokens === 1;
    this.blockLayers = new Map();
    this.exactHeads = new Map();
    this.keys = new Map();
    this.mask = null;
  }

  // Mean and largest weight of each block of one head, [blocks, blocks].
  blocksOf(layer, head) {
    if (!this.blockLayers.has(layer)) {
      this.blockLayers.set(layer, floatsOf(`b-${this.index}-${layer}`, 'f16'));
    }
    const all = this.blockLayers.get(layer);
    const size = this.blocks * this.blocks;
    return {
      mean: all.subarray(2 * head * size, (2 * head + 1) * size),
      max: all.subarray((2 * head + 1) * size, (2 * head + 2) * size)
    };
  }

  // The head whose q, k and log-sum-exp are in the page, or null.
  exactHead(layer, head) {
    const name = layer + '.' + head;
    const carried = this.carriedOf.get(name);
    if (!carried) return null;
    if (!this.exactHeads.has(name)) {
      if (!this.keys.has(carried.keys)) {
        this.keys.set(carried.keys, floatsOf(`k-${this.index}-${carried.keys}`, this.type));
      }
      const q = floatsOf(`q-${this.index}-${name}`, this.type);
      const lse = floatsOf(`l-${this.index}-${name}`, 'f32');
      this.exactHeads.set(name, new ExactHead(this, carried, q, this.keys.get(carried.keys), lse));
    }
    return this.exactHeads.get(name);
  }

  // May token i attend to token j?
  sees(i, j) {
    if (this.causal && j > i) return false;
    if (this.window > 0 && j <= i - this.window) return false;
    if (!this.masked) return true;
    if (!this.mask) this.mask = bytesOf(`m-${this.index}`);
    const bit = i * this.length + j;
    return (this.mask[bit >> 3] >> (bit & 7) & 1) === 1;
  }
}

function readTexts() {
  const element = byId('report');
  const data = JSON.parse(element.textContent);
  element.remove();
  return {program: data.program, texts: data.texts.map((text, index) => new Text(index, text))};
}
