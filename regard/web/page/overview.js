// All heads: rows are layers, columns heads; a thumbnail, the label and the entropy of each.

class Overview {
  constructor() {
    this.grid = byId('grid');
    this.grid.addEventListener('click', (event) => {
      const cell = event.target.closest('.thumb');
      if (cell) this.choose(cell, false);
    });
    this.grid.addEventListener('keydown', (event) => this.key(event));
    this.painter = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        this.painter.unobserve(entry.target);
        this.paintThumb(entry.target);
      }
    }, {rootMargin: '200px'});
    this.build();
  }

  build() {
    const text = currentText();
    this.text = text;
    this.painter.disconnect();
    this.layers = [...new Set(text.grid.map((head) => head.layer))];
    this.cells = new Map();
    this.grid.style.setProperty('--heads', text.heads);
    this.grid.setAttribute('aria-rowcount', this.layers.length);
    this.grid.setAttribute('aria-colcount', text.heads);
    const top = make('div', 'grid-row names');
    top.setAttribute('aria-hidden', 'true');
    top.append(
        make('span', 'row-name'),
        ...Array.from({length: text.heads}, (_, h) => make('span', 'column-name', h)));
    const rows = this.layers.map((layer, r) => {
      const row = make('div', 'grid-row');
      row.setAttribute('role', 'row');
      row.setAttribute('aria-rowindex', r + 1);
      const name = make('span', 'row-name', layer);
      name.setAttribute('aria-hidden', 'true');
      row.append(name);
      for (let head = 0; head < text.heads; head++) row.append(this.thumb(layer, head));
      return row;
    });
    this.grid.replaceChildren(top, ...rows);
    this.legend();
  }

  thumb(layer, head) {
    const {text} = this;
    const facts = text.headOf.get(`${layer}.${head}`);
    const cell = make('div', 'thumb');
    cell.setAttribute('role', 'gridcell');
    cell.setAttribute('aria-colindex', head + 1);
    cell.tabIndex = -1;
    cell.dataset.layer = layer;
    cell.dataset.head = head;
    const canvas = make('canvas');
    canvas.width = canvas.height = text.blocks;
    const bar = make('span', 'entropy-bar');
    bar.style.setProperty('--share', Number.isFinite(facts.share) ? facts.share : 0);
    cell.append(canvas, make('span', 'thumb-label'), bar, make('span', 'thumb-entropy', two(facts.entropy)));
    cell.classList.toggle('carried', text.carriedOf.has(`${layer}.${head}`));
    this.cells.set(`${layer}.${head}`, cell);
    this.painter.observe(cell);
    return cell;
  }

  paintThumb(cell) {
    const {text} = this;
    const {max} = text.blocksOf(Number(cell.dataset.layer), Number(cell.dataset.head));
    const size = text.blocks;
    const values = Float32Array.from(max);
    for (let r = 0; r < size; r++) {
      for (let c = 0; c < size; c++) {
        if (text.causal && c > r) values[r * size + c] = NaN;
      }
    }
    const context = cell.querySelector('canvas').getContext('2d');
    const image = context.createImageData(size, size);
    paint(image, values, niceAbove(values.reduce((a, b) => b > a ? b : a, 0)), 'weight');
    context.putImageData(image, 0, 0);
  }

  // How many heads have each label; a click makes those stand out.
  legend() {
    const counts = new Map();
    for (const head of this.text.grid) counts.set(head.label, (counts.get(head.label) || 0) + 1);
    const chips = [...counts].sort((a, b) => b[1] - a[1]).map(([label, count]) => {
      const chip = make('button', 'chip quiet-chip');
      chip.type = 'button';
      chip.append(make('span', '', labelName(label)), make('span', 'number', count));
      chip.title = labelMeaning(label);
      chip.dataset.label = label;
      chip.setAttribute('aria-pressed', state.label === label);
      chip.addEventListener('click', () => set({label: state.label === label ? '' : label}));
      return chip;
    });
    byId('legend').replaceChildren(...chips);
  }

  choose(cell, focus) {
    set({layer: Number(cell.dataset.layer), head: Number(cell.dataset.head)});
    if (focus) cell.focus();
  }

  key(event) {
    let row = this.layers.indexOf(state.layer), head = state.head;
    const lastRow = this.layers.length - 1, lastHead = this.text.heads - 1;
    if (event.key === 'ArrowRight')
      head = Math.min(lastHead, head + 1);
    else if (event.key === 'ArrowLeft')
      head = Math.max(0, head - 1);
    else if (event.key === 'ArrowDown')
      row = Math.min(lastRow, row + 1);
    else if (event.key === 'ArrowUp')
      row = Math.max(0, row - 1);
    else if (event.key === 'Home') {
      head = 0;
      if (event.ctrlKey) row = 0;
    } else if (event.key === 'End') {
      head = lastHead;
      if (event.ctrlKey) row = lastRow;
    } else if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      byId('map-grid').focus();
      return;
    } else
      return;
    event.preventDefault();
    this.choose(this.cells.get(`${this.layers[row]}.${head}`), true);
  }

  update(changed) {
    if (this.text !== currentText()) this.build();
    if (changed.has('language')) this.legend();
    const everything = changed.has('language') || changed.has('text') || changed.has('all');
    for (const [name, cell] of this.cells) {
      const chosen = name === `${state.layer}.${state.head}`;
      if (everything) {
        const facts = this.text.headOf.get(name);
        const label = labelName(facts.label);
        cell.querySelector('.thumb-label').textContent = label;
        const said =
            say('headCell', facts.layer, facts.head, `${label} ${two(facts.score)}`, two(facts.entropy),
                percent(facts.share || 0));
        cell.setAttribute(
            'aria-label', this.text.carriedOf.has(name) ? said : `${said}; ${say('notCarried')}`);
        cell.title = `${say('layerHead', facts.layer, facts.head)}\n${label} ${two(facts.score)}: ${
            labelMeaning(facts.label)}\n${say('entropy', two(facts.entropy), percent(facts.share || 0))}`;
      }
      cell.tabIndex = chosen ? 0 : -1;
      cell.classList.toggle('chosen', chosen);
      cell.setAttribute('aria-selected', chosen);
      cell.classList.toggle('dim', state.label !== '' && this.text.headOf.get(name).label !== state.label);
    }
    for (const chip of byId('legend').children)
      chip.setAttribute('aria-pressed', chip.dataset.label === state.label);
  }
}
