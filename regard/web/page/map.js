// One head large: a window of the map on a canvas of the size of the screen part, labels beside it, marks for
// the row and column pointed at on a second canvas.

const fewestCells = 6;      // zooming in stops here
const exactBudget = 1.6e8;  // multiplications that may be spent on the cells in sight
const numbersFrom = 32;     // pixels a cell needs to hold its number

class HeadMap {
  constructor() {
    this.box = byId('map');
    this.plot = byId('plot');
    this.cells = byId('cells');
    this.marks = byId('marks');
    this.draw = eachFrame(() => this.paint());
    this.drawMarks = eachFrame(() => this.paintMarks());
    this.view = {x: 0, y: 0, span: 1};
    this.rowLabels = new Labels(byId('row-labels'));
    this.columnLabels = new Labels(byId('column-labels'));
    this.renew();
    new ResizeObserver(() => this.resize()).observe(this.box);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.draw();
      this.drawMarks();
    });
  }

  // Another head, text or unit: new tiles, and the whole map in sight where the count changed.
  renew() {
    const text = currentText();
    this.field = fieldOf(text);
    this.field.layer = state.layer;
    this.field.number = state.head;
    this.count = this.field.units.count;
    const quantity = this.field.head.exact ? state.quantity : 'weight';
    const name = `${text.index} ${state.layer}.${state.head} ${state.words} ${state.hide} ${quantity}`;
    if (this.name !== name) {
      this.name = name;
      this.tiles = new Tiles(this.field, quantity, () => this.draw());
    }
    const shape = `${text.index} ${state.words} ${state.hide}`;
    if (this.shape !== shape) {
      this.shape = shape;
      this.view = {x: 0, y: 0, span: Math.max(1, this.count)};
      this.measureLabels();
    }
    this.findEnd();
    this.draw();
    this.drawMarks();
  }

  // The end of the colour scale where the whole map is in sight.
  findEnd() {
    const {text} = this.field;
    if (this.tiles.quantity === 'score') {
      // The largest |score| on a sample of rows and columns, rounded up.
      let largest = 0;
      const step = Math.max(1, Math.floor(this.count / 64));
      for (let r = 0; r < this.count; r += step) {
        for (let c = 0; c < this.count; c += step) {
          if (this.field.visible(r, c)) largest = Math.max(largest, Math.abs(this.field.score(r, c)));
        }
      }
      this.wholeEnd = Math.max(1, Math.ceil(largest));
    } else {
      this.wholeEnd =
          niceAbove(text.blocksOf(state.layer, state.head).max.reduce((a, b) => b > a ? b : a, 0));
    }
  }

  measureLabels() {
    const context = this.marks.getContext('2d');
    context.font = getComputedStyle(document.body).getPropertyValue('--label-font');
    let widest = 0;
    for (const unit of this.field.units.list.slice(0, 500))
      widest = Math.max(widest, context.measureText(shown(unit.text)).width);
    const limit = this.box.clientWidth < 480 ? 60 : 96;
    const gutter = Math.ceil(Math.min(limit, Math.max(24, widest + 10)));
    this.box.style.setProperty('--gutter', gutter + 'px');
    this.box.style.setProperty('--slope', Math.ceil(gutter * 0.82 + 12) + 'px');
    this.resize();
  }

  resize() {
    const size = this.plot.clientWidth;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    if (!size || (size === this.size && ratio === this.ratio)) return;
    Object.assign(this, {size, ratio});
    for (const canvas of [this.cells, this.marks]) canvas.width = canvas.height = Math.round(size * ratio);
    this.draw();
    this.drawMarks();
  }

  paint() {
    if (!this.size || !this.count) return;
    const {view, count, field} = this;
    const device = this.size * this.ratio;
    const r0 = Math.max(0, Math.floor(view.y)), r1 = Math.min(count, Math.ceil(view.y + view.span));
    const c0 = Math.max(0, Math.floor(view.x)), c1 = Math.min(count, Math.ceil(view.x + view.span));
    const step = Math.max(1, Math.ceil(view.span / device));
    // Start at a multiple of the step, so that gathered cells do not flicker while the map moves.
    const part = {r0: r0 - r0 % step, r1, c0: c0 - c0 % step, c1};
    const cost = (r1 - r0) * (c1 - c0) * (field.head.size || 1) * Math.ceil((field.text.length / count) ** 2);
    this.exact = field.known && (!field.head.exact || cost <= exactBudget);
    this.gathered = step > 1;
    const picture = gather(field, this.tiles, part, step, state.gather, this.exact);
    this.end = this.wholeEnd;
    if (view.span < count && this.tiles.quantity === 'weight') {
      // Zoomed in, the scale follows what is in sight: far from the diagonal weights are small.
      this.end = niceAbove(picture.values.reduce((a, b) => b > a ? b : a, 0));
    }
    const image = new ImageData(picture.columns, picture.rows);
    paint(image, picture.values, this.end, this.tiles.quantity);
    const small = this.small || (this.small = document.createElement('canvas'));
    small.width = picture.columns;
    small.height = picture.rows;
    small.getContext('2d').putImageData(image, 0, 0);
    const context = this.cells.getContext('2d');
    const pixels = device / view.span;
    context.clearRect(0, 0, device, device);
    context.imageSmoothingEnabled = step > 1;
    context.drawImage(
        small, (part.c0 - view.x) * pixels, (part.r0 - view.y) * pixels, picture.columns * step * pixels,
        picture.rows * step * pixels);
    if (pixels / this.ratio >= numbersFrom && step === 1 && this.exact)
      this.writeNumbers(context, picture, part, pixels);
    this.tiles.ask(picture.missing);
    this.cells.dataset.pending = picture.missing.length;
    this.placeLabels();
    this.showFacts();
  }

  writeNumbers(context, {values, rows, columns}, from, pixels) {
    const {view} = this;
    context.font = `${
        Math.round(
            Math.min(13, pixels / this.ratio / 3) * this.ratio)}px ui-sans-serif, system-ui, sans-serif`;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const value = values[r * columns + c];
        const score = this.tiles.quantity === 'score';
        if (!(score ? value === value : value >= 0.005)) continue;
        const index = score ? scoreIndex(value, this.end) : weightIndex(value, this.end);
        const light = score ? index > 70 && index < 200 : index > 140;
        context.fillStyle = light ? '#14161c' : '#f4f1e8';
        const label = score ? value.toFixed(1).replace(/^-0\.0$/, '0.0').replace('-', '−') :
            value >= 0.995  ? '1' :
                              value.toFixed(2).slice(1);
        context.fillText(label, (from.c0 + c + 0.5 - view.x) * pixels, (from.r0 + r + 0.5 - view.y) * pixels);
      }
    }
  }

  paintMarks() {
    const context = this.marks.getContext('2d');
    const {view, ratio} = this;
    const device = this.size * ratio, pixels = device / view.span;
    context.clearRect(0, 0, device, device);
    const style = getComputedStyle(document.body);
    const band = (along, at, colour, width) => {
      if (at < 0) return;
      const start = (at - (along === 'row' ? view.y : view.x)) * pixels;
      context.strokeStyle = colour;
      context.lineWidth = width * ratio;
      const thick = Math.max(pixels, 3 * ratio);
      if (along === 'row')
        context.strokeRect(-9, start, device + 18, thick);
      else
        context.strokeRect(start, -9, thick, device + 18);
    };
    const locked = this.lockedUnit();
    if (state.row !== locked || state.direction === 'from')
      band('row', state.row, style.getPropertyValue('--mark-soft'), 1);
    band('column', state.column, style.getPropertyValue('--mark-soft'), 1);
    band(state.direction === 'to' ? 'row' : 'column', locked, style.getPropertyValue('--mark'), 2);
    if (state.row >= 0 && state.column >= 0) {
      context.strokeStyle = style.getPropertyValue('--mark');
      context.lineWidth = 2.5 * ratio;
      context.strokeRect(
          (state.column - view.x) * pixels, (state.row - view.y) * pixels, Math.max(pixels, 4 * ratio),
          Math.max(pixels, 4 * ratio));
    }
    this.rowLabels.mark(state.row, state.direction === 'to' ? locked : -1);
    this.columnLabels.mark(state.column, state.direction === 'from' ? locked : -1);
  }
  lockedUnit() { return state.locked >= 0 ? this.field.units.unitOf[state.locked] : -1; }

  placeLabels() {
    const {view, count, size} = this;
    const {list} = this.field.units;
    const pixels = size / view.span;
    this.rowLabels.place(list, view.y, view.span, count, pixels, 14);
    this.columnLabels.place(list, view.x, view.span, count, pixels, 15);
    this.rowLabels.mark(state.row, state.direction === 'to' ? this.lockedUnit() : -1);
    this.columnLabels.mark(state.column, state.direction === 'from' ? this.lockedUnit() : -1);
  }

  // What of the controls and notes fits the picture.
  showFacts() {
    byId('gather').hidden = !this.gathered && this.exact;
    byId('quantity').hidden = !this.field.head.exact;
    const score = this.tiles.quantity === 'score';
    const table = score ? diverging : cividis;
    const bar = byId('scale-bar').getContext('2d');
    const image = bar.createImageData(128, 1);
    for (let x = 0; x < 128; x++) {
      for (let c = 0; c < 3; c++) image.data[4 * x + c] = table[3 * 2 * x + c];
      image.data[4 * x + 3] = 255;
    }
    bar.putImageData(image, 0, 0);
    byId('scale-low').textContent = score ? `−${this.end}` : '0';
    // Words gather the weights of their tokens and may lie above the end.
    byId('scale-high').textContent = this.end +
        (!score && this.end < 1 && this.end === this.wholeEnd &&
                 (this.field.units.words || this.field.units.hide) ?
             '+' :
             '');
    byId('scale').setAttribute('aria-label', say(score ? 'scaleNameScore' : 'scaleName', this.end));
    byId('scale').title = say(score ? 'scaleNameScore' : 'scaleName', this.end);
    const whole = this.view.span >= this.count;
    byId('zoom-fit').disabled = whole;
    byId('zoom-out').disabled = whole;
    byId('zoom-in').disabled = this.view.span <= fewestCells;
    this.plot.classList.toggle('zoomed', !whole);
    if (this.blocky !== !this.exact) {
      this.blocky = !this.exact;
      showHead();
    }
  }

  // Zooms about a point given in cells.
  zoom(factor, x, y) {
    const {view, count} = this;
    const span = Math.min(count, Math.max(Math.min(fewestCells, count), view.span * factor));
    const ratio = span / view.span;
    this.moveTo(x - (x - view.x) * ratio, y - (y - view.y) * ratio, span);
  }
  moveTo(x, y, span) {
    const limit = Math.max(0, this.count - span);
    this.view = {x: Math.min(limit, Math.max(0, x)), y: Math.min(limit, Math.max(0, y)), span};
    this.draw();
    this.drawMarks();
  }
  // Brings a cell into sight.
  reveal(row, column) {
    const {x, y, span} = this.view;
    const into = (start, cell) => cell < start ? cell : cell + 1 > start + span ? cell + 1 - span : start;
    this.moveTo(column >= 0 ? into(x, column) : x, row >= 0 ? into(y, row) : y, span);
  }

  update(changed) {
    if (['all', 'text', 'layer', 'head', 'words', 'hide', 'quantity'].some((name) => changed.has(name)))
      this.renew();
    if (changed.has('gather')) this.draw();
    if (changed.has('locked') && state.locked >= 0)
      this.reveal(state.direction === 'to' ? this.lockedUnit() : -1, -1);
    if (changed.has('language') || changed.has('layer') || changed.has('head') || changed.has('all'))
      byId('map-grid').setAttribute('aria-label', say('mapLabel', state.layer, state.head));
    this.drawMarks();
  }
}
