// The text itself: the words that the chosen word looks at are shaded, and a line says how much of each.

const termsNamed = 5;        // words named in the line,
const smallestNamed = 0.01;  // none below this

class Strip {
  constructor(text, many) {
    this.text = text;
    this.box = make('div', 'strip-box');
    if (many) this.box.append(make('p', 'strip-name'));
    this.words = make('div', 'strip');
    this.words.setAttribute('role', 'listbox');
    this.line = make('p', 'mixture');
    this.box.append(this.words, this.line);
    this.levels = new Int8Array(0);
    this.levelOf = () => 0;
    this.build();
    this.words.addEventListener('pointerover', (event) => this.point(event));
    this.words.addEventListener('click', (event) => this.pick(this.unitAt(event)));
    this.words.addEventListener('keydown', (event) => this.key(event));
    this.words.addEventListener('scroll', eachFrame(() => this.shadeSeen()));
    this.words.addEventListener('focusin', (event) => this.point(event));
  }

  build() {
    const units = unitsOf(this.text);
    const {tokens} = this.text;
    this.units = units;
    this.spans = [];
    const parts = [];
    this.words.dir = directionOf(units.list);
    this.subject = this.pointed = -1;
    units.list.forEach((unit, u) => {
      const token = tokens[unit.first];
      if (u && token.gap === 2)
        parts.push(make('br'));
      else if (u && (token.gap || unit.special || units.list[u - 1].special))
        parts.push(document.createTextNode(' '));
      const span = make('span', unit.special ? 'word special' : 'word', shown(unit.text));
      span.dataset.unit = u;
      span.setAttribute('role', 'option');
      span.tabIndex = -1;
      parts.push(span);
      this.spans.push(span);
    });
    this.words.replaceChildren(...parts);
    this.words.classList.toggle('long', units.count > 60);
    this.words.classList.toggle('very-long', units.count > 400);
    this.levels = new Int8Array(units.count).fill(-1);
    this.cursor = 0;
    this.tabStop(Math.max(0, state.locked >= 0 ? units.unitOf[state.locked] : 0));
  }

  tabStop(u) {
    if (this.spans[this.cursor]) this.spans[this.cursor].tabIndex = -1;
    this.cursor = u;
    if (this.spans[u]) this.spans[u].tabIndex = 0;
  }
  unitAt(event) {
    const span = event.target.closest('.word');
    return span ? Number(span.dataset.unit) : -1;
  }

  // Without a locked row the word pointed at is the row; with one it is the column of the pair shown.
  point(event) {
    const u = this.unitAt(event);
    if (u < 0) return;
    if (this.text !== currentText()) return;
    const subject = state.locked >= 0 ? this.units.unitOf[state.locked] : -1;
    if (subject < 0)
      set(strongestPair(u));
    else if (state.direction === 'to')
      set({row: subject, column: u});
    else
      set({row: u, column: subject});
  }

  pick(u) {
    if (u < 0) return;
    this.tabStop(u);
    lock(this.text, this.units.list[u].first);
  }

  key(event) {
    const forward = getComputedStyle(this.words).direction === 'rtl' ? 'ArrowLeft' : 'ArrowRight';
    const backward = forward === 'ArrowRight' ? 'ArrowLeft' : 'ArrowRight';
    const last = this.units.count - 1;
    let next = this.cursor;
    if (event.key === forward || event.key === 'ArrowDown')
      next = Math.min(last, next + 1);
    else if (event.key === backward || event.key === 'ArrowUp')
      next = Math.max(0, next - 1);
    else if (event.key === 'Home')
      next = 0;
    else if (event.key === 'End')
      next = last;
    else if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      this.pick(this.cursor);
      return;
    } else if (event.key === 'Escape') {
      free();
      return;
    } else
      return;
    event.preventDefault();
    this.tabStop(next);
    this.spans[next].focus();
  }

  update(changed) {
    if (changed.has('words') || changed.has('hide')) this.build();
    const name = this.box.querySelector('.strip-name');
    if (name) name.textContent = say('textName', this.text.index ? 'B' : 'A');
    this.box.classList.toggle('current', this.text === currentText());
    this.words.setAttribute('aria-label', say('readingTitle'));
    const subject = subjectOf(this.text);
    if (changed.has('locked') || changed.has('all')) this.reveal(subject);
    const field = fieldOf(this.text);
    const weights = subject < 0 || !field.known ? null :
        state.direction === 'to'                ? field.row(subject) :
                                                  field.column(subject);
    this.shade(subject, weights);
    this.line.replaceChildren(...(weights ? this.mixture(subject, weights) : [this.hint(field)]));
  }
  // Scrolls a long text, and nothing else, to a word.
  reveal(u) {
    const span = this.spans[u];
    if (!span || this.words.scrollHeight <= this.words.clientHeight) return;
    const top = span.offsetTop - this.words.offsetTop;
    if (top < this.words.scrollTop || top > this.words.scrollTop + this.words.clientHeight - 30)
      this.words.scrollTop = top - this.words.clientHeight / 2;
  }
  hint(field) { return make('span', 'hint', say(field.known ? 'choose' : 'blockStrip')); }

  // Shades relative to the largest weight on a word, so that a row's order can be seen at any length; the
  // line below has the numbers.
  shade(subject, weights) {
    let largest = 1e-9;
    if (weights)
      weights.forEach((weight, u) => {
        if (!this.units.isSink(u)) largest = Math.max(largest, weight);
      });
    this.levelOf = (u) => weights ? Math.round(20 * Math.min(1, weights[u] / largest) ** 0.7) : 0;
    this.shadeSeen();
    const pointed = subject < 0 || this.text !== currentText() ? -1 :
        state.direction === 'to'                               ? state.column :
                                                                 state.row;
    for (const [place, u] of [['subject', subject], ['pointed', pointed]]) {
      if (this[place] === u) continue;
      const before = this.spans[this[place]], after = this.spans[u];
      if (before) before.classList.remove(place);
      if (after) after.classList.add(place);
      if (place === 'subject') {
        if (before) before.setAttribute('aria-selected', false);
        if (after) after.setAttribute('aria-selected', true);
      }
      this[place] = u;
    }
  }

  // Of a long text only the words in sight are shaded; scrolling shades the next.
  shadeSeen() {
    const {spans, words} = this;
    let first = 0, last = spans.length;
    if (words.scrollHeight > words.clientHeight) {
      const top = words.offsetTop + words.scrollTop - 60, bottom = top + words.clientHeight + 120;
      first = firstWhere(spans.length, (u) => spans[u].offsetTop >= top);
      last = firstWhere(spans.length, (u) => spans[u].offsetTop > bottom);
    }
    for (let u = first; u < last; u++) {
      const level = this.levelOf(u);
      if (this.levels[u] === level) continue;
      spans[u].style.setProperty('--level', level / 20);
      spans[u].classList.toggle('strong', level >= 12);
      this.levels[u] = level;
    }
  }

  // `it = 0.64 animal + ... + 0.05 on 8 others`; sinks on a line of their own. The parts sum to 1.
  mixture(subject, weights) {
    const {units} = this;
    const order =
        [...weights.keys()].filter((u) => !units.isSink(u)).sort((a, b) => weights[b] - weights[a] || a - b);
    const named = order.filter((u, at) => at < termsNamed && weights[u] >= smallestNamed);
    const rest = order.slice(named.length);
    const sinks = [...weights.keys()].filter((u) => units.isSink(u) && weights[u] > 0);
    const out = [wordIn('b', 'subject-name', shown(units.list[subject].text))];
    const to = state.direction === 'to';
    const add = (sign, weight, node) => {
      const term = make('span', 'term');
      term.append(
          make('span', 'sign', sign), make('span', 'number', two(weight)), document.createTextNode(' '),
          node);
      out.push(document.createTextNode(' '), term);
    };
    const sum = (list) => list.reduce((total, u) => total + weights[u], 0);
    const parts = hundredths(named.map((u) => weights[u]), sum(sinks), rest.length && sum(rest) > 0);
    named.forEach(
        (u, at) => add(
            at     ? '+' :
                to ? '=' :
                     '←',
            to ? parts.terms[at] / 100 : weights[u], wordIn('span', 'term-word', shown(units.list[u].text))));
    if (!to) return out;
    if (rest.length && (parts.rest || !named.length))
      add(named.length ? '+' : '=', parts.rest / 100, make('span', 'quiet', say('rest', rest.length)));
    if (parts.sinks) {
      const name = !this.text.causal               ? 'specials' :
          sinks.some((u) => units.list[u].special) ? 'sinks' :
                                                     'firstToken';
      const each = sinks.filter((u) => weights[u] >= 0.005)
                       .slice(0, 3)
                       .map((u) => `${shown(units.list[u].text)} ${two(weights[u])}`);
      add('+', parts.sinks / 100,
          make('span', 'quiet', `${say('remaining')} ${say(name)} (${each.join(', ')})`));
    }
    return out;
  }
}

// Terms, sinks and rest in hundredths that sum to exactly 100.
function hundredths(terms, sinks, anythingLeft) {
  const out = [...terms, sinks].map((weight) => Math.round(100 * weight));
  let rest = 100 - out.reduce((a, b) => a + b, 0);
  while (rest < 0 || (rest > 0 && !anythingLeft && out.some((part) => part > 0))) {
    const step = rest < 0 ? -1 : 1;
    out[out.indexOf(Math.max(...out))] += step;
    rest -= step;
  }
  return {terms: out.slice(0, -1), sinks: out[out.length - 1], rest};
}

// The first of 0..count - 1 for which a condition holds that, once true, stays true; count where none does.
function firstWhere(count, holds) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// Text runs the way of its first letter.
function directionOf(units) {
  for (const unit of units) {
    const letter = unit.special ? null : /\p{L}/u.exec(unit.text);
    if (letter) return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter[0]) ? 'rtl' : 'ltr';
  }
  return 'ltr';
}

// A unit and the word that it looks at most (or that looks at it most), as a row and a column.
function strongestPair(u) {
  const text = currentText(), units = unitsOf(text), field = fieldOf(text);
  if (u < 0 || !field.known)
    return {row: state.direction === 'to' ? u : -1, column: state.direction === 'to' ? -1 : u};
  const weights = state.direction === 'to' ? field.row(u) : field.column(u);
  let best = -1;
  weights.forEach((weight, other) => {
    if (!units.isSink(other) && (best < 0 || weight > weights[best])) best = other;
  });
  return state.direction === 'to' ? {row: u, column: best} : {row: best, column: u};
}

// Locks the row of a token, or frees it where it is locked already.
function lock(text, token, cell) {
  if (state.text === text.index && state.locked === token) {
    free();
    return;
  }
  state.text === text.index || set({text: text.index, locked: -1});
  set({locked: token, ...(cell || strongestPair(unitsOf(text).unitOf[token]))});
  announce(strips[text.index].line.textContent);
}
function free() {
  if (state.locked >= 0) announce(say('saidFreed'));
  set({locked: -1});
}
