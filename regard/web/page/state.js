// What is chosen at the moment. Parts of the page read it and ask for changes through set().

const state = {
  text: 0,  // which of the texts
  layer: 0,
  head: 0,
  words: true,      // units are words, else tokens
  hide: false,      // special tokens
  direction: 'to',  // 'to': what the word looks at; 'from': who looks at it
  locked: -1,       // token of the locked row, -1: none
  row: -1,          // unit under the pointer or cursor
  column: -1,
  quantity: 'weight',
  gather: 'max',
  label: '',  // heads with this label stand out
};

let texts = [];
const listeners = [];
const onChange = (listener) => listeners.push(listener);

// Changes some of the state and tells every part which names changed.
function set(changes) {
  const changed = new Set();
  for (const [name, value] of Object.entries(changes)) {
    if (state[name] !== value) {
      state[name] = value;
      changed.add(name);
    }
  }
  if (!changed.size) return;
  for (const listener of listeners) listener(changed);
}

const currentText = () => texts[state.text];

const unitsCache = new Map();
function unitsOf(text) {
  const name = `${text.index} ${state.words} ${state.hide}`;
  if (!unitsCache.has(name))
    unitsCache.set(name, new Units(text, state.words && text.words.length > 0, state.hide));
  return unitsCache.get(name);
}

const fieldCache = new Map();
function fieldOf(text, layer = state.layer, head = state.head) {
  const name = `${text.index} ${state.words} ${state.hide} ${layer} ${head}`;
  if (!fieldCache.has(name)) {
    if (fieldCache.size > 400) fieldCache.clear();
    fieldCache.set(name, new Field(headIn(text, layer, head), unitsOf(text)));
  }
  return fieldCache.get(name);
}

// The unit that the reading part is about: the locked row, else the one pointed at.
function subjectOf(text) {
  const units = unitsOf(text);
  if (state.locked >= 0) return text === currentText() ? units.unitOf[state.locked] : counterpart(text);
  if (text === currentText()) return state.row < units.count ? state.row : -1;
  return -1;
}

// The locked word in the other text: the one that was asked for there if this one was here, else the word at the same
// place, else the first word that reads the same.
function counterpart(text) {
  const mine = unitsOf(currentText()), other = unitsOf(text);
  const unit = mine.list[mine.unitOf[state.locked]];
  if (!unit) return -1;
  const asked = currentText().focus, wanted = text.focus;
  if (!asked.reason && !wanted.reason && asked.token >= 0 && mine.unitOf[asked.token] === mine.unitOf[state.locked])
    return other.unitOf[wanted.token] ?? -1;
  const same = other.unitOf[state.locked];
  if (same >= 0 && other.list[same].text === unit.text) return same;
  return other.list.findIndex((candidate) => candidate.text === unit.text);
}

// The place in the address, so that a view can be kept or sent.
function writeAddress() {
  const parts = [`h=${state.layer}.${state.head}`];
  if (state.locked >= 0) parts.push(`row=${state.locked}`);
  if (state.text) parts.push(`text=${state.text}`);
  if (!state.words) parts.push('unit=token');
  if (state.hide) parts.push('hide=1');
  if (state.direction === 'from') parts.push('dir=from');
  if (state.quantity === 'score') parts.push('show=score');
  parts.push(`lang=${language}`);
  try {
    history.replaceState(null, '', '#' + parts.join('&'));
  } catch { /* some viewers allow no history */
  }
}

function readAddress() {
  const wish = new Map(location.hash.slice(1).split('&').map((part) => part.split('=')));
  const whole = (name) => /^\d+$/.test(wish.get(name) || '') ? Number(wish.get(name)) : -1;
  if (whole('text') >= 0 && whole('text') < texts.length) state.text = whole('text');
  const [layer, head] = (wish.get('h') || '').split('.');
  if (currentText().headOf.has(`${layer}.${head}`)) {
    state.layer = Number(layer);
    state.head = Number(head);
  }
  if (whole('row') >= 0 && whole('row') < currentText().length) state.locked = whole('row');
  if (wish.get('unit') === 'token') state.words = false;
  if (wish.get('unit') === 'word') state.words = true;
  if (wish.get('hide') === '1') state.hide = true;
  if (wish.get('dir') === 'from') state.direction = 'from';
  if (wish.get('show') === 'score') state.quantity = 'score';
  if (phrases[wish.get('lang')]) language = wish.get('lang');
}
