// Pointer, wheel and keys on the large map.

class MapInput {
  constructor(map) {
    this.map = map;
    this.plot = byId('plot');
    this.proxy = byId('map-grid');
    this.pointers = new Map();
    this.dragged = false;
    this.plot.addEventListener('pointermove', (event) => this.move(event));
    this.plot.addEventListener('pointerdown', (event) => this.down(event));
    this.plot.addEventListener('pointerup', (event) => this.up(event));
    this.plot.addEventListener('pointercancel', (event) => this.pointers.delete(event.pointerId));
    this.plot.addEventListener('pointerleave', (event) => this.pointers.delete(event.pointerId));
    this.plot.addEventListener('wheel', (event) => this.wheel(event), {passive: false});
    this.proxy.addEventListener('keydown', (event) => this.key(event));
    this.proxy.addEventListener('focus', () => {
      if (state.row < 0 && this.proxy.matches(':focus-visible')) this.go(Math.max(0, map.lockedUnit()), 0);
    });
    byId('zoom-in').addEventListener('click', () => this.zoomAtCentre(1 / 1.6));
    byId('zoom-out').addEventListener('click', () => this.zoomAtCentre(1.6));
    byId('zoom-fit').addEventListener('click', () => map.moveTo(0, 0, map.count));
  }

  // The place under a pointer, in cells.
  at(event) {
    const box = this.plot.getBoundingClientRect();
    const {x, y, span} = this.map.view;
    return {
      x: x + (event.clientX - box.left) / box.width * span,
      y: y + (event.clientY - box.top) / box.height * span
    };
  }
  cellAt(event) {
    const {x, y} = this.at(event);
    const last = this.map.count - 1;
    return {
      row: Math.max(0, Math.min(last, Math.floor(y))),
      column: Math.max(0, Math.min(last, Math.floor(x)))
    };
  }

  down(event) {
    this.pointers.set(event.pointerId, {x: event.clientX, y: event.clientY});
    this.dragged = false;
    if (event.pointerType === 'mouse' || this.map.view.span < this.map.count)
      this.plot.setPointerCapture(event.pointerId);
  }

  move(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last) {
      set(this.cellAt(event));
      return;
    }
    const scale = this.map.view.span / this.plot.clientWidth;
    const moved = Math.hypot(event.clientX - last.x, event.clientY - last.y);
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const before = Math.hypot(last.x - other.x, last.y - other.y);
      const after = Math.hypot(event.clientX - other.x, event.clientY - other.y);
      const middle =
          this.at({clientX: (event.clientX + other.x) / 2, clientY: (event.clientY + other.y) / 2});
      if (before > 0 && after > 0) this.map.zoom(before / after, middle.x, middle.y);
      this.dragged = true;
    } else if (this.dragged || moved > 4) {
      this.dragged = true;
      const {x, y, span} = this.map.view;
      this.map.moveTo(x - (event.clientX - last.x) * scale, y - (event.clientY - last.y) * scale, span);
    } else {
      return;
    }
    this.pointers.set(event.pointerId, {x: event.clientX, y: event.clientY});
  }

  up(event) {
    const alone = this.pointers.size === 1;
    if (!this.pointers.delete(event.pointerId) || this.dragged || !alone) return;
    const cell = this.cellAt(event);
    set(cell);
    this.lockCell(cell);
  }

  lockCell({row, column}) {
    const unit = this.map.field.units.list[state.direction === 'to' ? row : column];
    lock(currentText(), unit.first, {row, column});
  }

  // The wheel scrolls the page; with Ctrl, or once the map has the focus, it zooms.
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.proxy) return;
    event.preventDefault();
    const {x, y} = this.at(event);
    this.map.zoom(Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY * 0.002))), x, y);
  }

  zoomAtCentre(factor) {
    const {x, y, span} = this.map.view;
    const here = state.row >= 0 && state.column >= 0 && document.activeElement === this.proxy;
    this.map.zoom(factor, here ? state.column + 0.5 : x + span / 2, here ? state.row + 0.5 : y + span / 2);
  }

  key(event) {
    const last = this.map.count - 1;
    let row = Math.max(0, state.row), column = Math.max(0, state.column);
    const page = Math.max(1, Math.floor(this.map.view.span / 2));
    switch (event.key) {
      case 'ArrowRight':
        column++;
        break;
      case 'ArrowLeft':
        column--;
        break;
      case 'ArrowDown':
        row++;
        break;
      case 'ArrowUp':
        row--;
        break;
      case 'PageDown':
        row += page;
        break;
      case 'PageUp':
        row -= page;
        break;
      case 'Home':
        column = 0;
        if (event.ctrlKey) row = 0;
        break;
      case 'End':
        column = last;
        if (event.ctrlKey) row = last;
        break;
      case '+':
      case '=':
        event.preventDefault();
        this.zoomAtCentre(1 / 1.6);
        return;
      case '-':
      case '_':
        event.preventDefault();
        this.zoomAtCentre(1.6);
        return;
      case '0':
        this.map.moveTo(0, 0, this.map.count);
        return;
      case 'Enter':
      case ' ':
        event.preventDefault();
        this.lockCell({row, column});
        return;
      case 'Escape':
        free();
        return;
      default:
        return;
    }
    event.preventDefault();
    this.go(Math.max(0, Math.min(last, row)), Math.max(0, Math.min(last, column)));
  }

  go(row, column) {
    set({row, column});
    this.map.reveal(row, column);
    const message = describeCell(this.map.field, row, column);
    byId('proxy-row').setAttribute('aria-rowindex', row + 1);
    byId('proxy-cell').setAttribute('aria-colindex', column + 1);
    byId('proxy-cell').textContent = message;
    announce(message);
  }
}

// A cell in words, for those who hear the page.
function describeCell(field, row, column) {
  const {list} = field.units;
  const names = [shown(list[row].text), shown(list[column].text), row + 1, column + 1];
  if (!field.visible(row, column)) return say('saidMasked', ...names);
  if (field.known)
    return say(
        'said', ...names, digits(field.weight(row, column)),
        field.head.exact ? digits(field.score(row, column)) : '');
  const {mean, max} = blockAt(field, row, column);
  return say('saidBlock', ...names, digits(mean), digits(max));
}

function blockAt(field, row, column) {
  const {text, units} = field;
  const maps = text.blocksOf(state.layer, state.head);
  const at = Math.floor(units.list[row].first / text.blockTokens) * text.blocks +
      Math.floor(units.list[column].first / text.blockTokens);
  return {mean: maps.mean[at], max: maps.max[at]};
}
