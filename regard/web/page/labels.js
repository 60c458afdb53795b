// Labels along one side, as many as fit, set as text.
class Labels {
  constructor(box) {
    this.box = box;
    this.pool = [];
  }
  place(list, start, span, count, pixels, room) {
    const stride = Math.max(1, Math.ceil(room / pixels));
    let used = 0;
    const first = Math.ceil(Math.max(0, start - 0.5) / stride) * stride;
    for (let u = first; u < Math.min(count, start + span); u += stride) {
      const at = (u + 0.5 - start) * pixels;
      if (at < 0 || at > span * pixels) continue;
      if (!this.pool[used]) {
        this.pool.push(wordIn('span', 'label'));
        this.box.append(this.pool[used]);
      }
      const label = this.pool[used++];
      const text = shown(list[u].text);
      if (label.textContent !== text) label.textContent = text;
      label.unit = u;
      label.style.setProperty('--at', at.toFixed(1) + 'px');
      label.hidden = false;
      label.classList.toggle('special', list[u].special);
    }
    for (; used < this.pool.length; used++) {
      this.pool[used].hidden = true;
      this.pool[used].unit = -1;
    }
  }
  mark(pointed, locked) {
    for (const label of this.pool) {
      label.classList.toggle('pointed', label.unit >= 0 && label.unit === pointed);
      label.classList.toggle('locked', label.unit >= 0 && label.unit === locked);
    }
  }
}
