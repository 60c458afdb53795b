// The numbers of one cell, as the equation that makes them.

class Readout {
  constructor() { this.box = byId('readout'); }

  update() {
    const text = currentText();
    const field = fieldOf(text);
    const {list} = field.units;
    let {row, column} = state;
    if (row < 0 || column < 0 || row >= list.length || column >= list.length) {
      this.box.replaceChildren(make('p', 'hint', say('readoutEmpty')));
      return;
    }
    const from = list[row], to = list[column];
    const title = make('p', 'pair-title');
    title.append(
        wordIn('b', '', shown(from.text)), make('span', 'quiet place', ` ${from.first} `),
        make('span', 'arrow', '→ '), wordIn('b', '', shown(to.text)),
        make('span', 'quiet place', ` ${to.first}`));
    const parts = [title];
    if (!field.visible(row, column))
      parts.push(make('p', 'hint', say(text.causal && to.first > from.first ? 'hiddenPair' : 'maskedPair')));
    else if (!field.known) {
      const {mean, max} = blockAt(field, row, column);
      parts.push(make('p', '', say('blockReadout', digits(mean), digits(max))));
    } else if (!field.head.exact) {
      parts.push(this.equation([['weight', digits(field.weight(row, column)), 'main']]));
    } else {
      parts.push(...this.exact(field, row, column));
    }
    this.box.replaceChildren(...parts);
  }

  exact(field, row, column) {
    const {head, text} = field;
    const [i, j] = field.strongest(row, column);
    const pairs = field.units.list[row].count * field.units.list[column].count;
    const weight = field.weight(row, column), score = head.score(i, j);
    const {qNorm, kNorm, cosine, dot} = head.parts(i, j);
    const out = [];
    const raw = digits(Math.exp(score - head.lse[i]));
    const first = [['weight', pairs > 1 ? digits(weight) : raw, 'main']];
    if (pairs > 1)
      out.push(
          this.equation(first),
          make(
              'p', 'hint',
              say('strongestPair', `${shown(text.tokens[i].text)} ${i}`, `${shown(text.tokens[j].text)} ${j}`,
                  pairs)));
    else if (field.units.hidden.length)
      out.push(make(
          'p', 'hint',
          `${say('weight')} ${digits(weight)}: ${raw} ${say('rescaled', digits(field.keep(row)))}`));
    const second = pairs > 1 ? [['weight', raw]] : first;
    const equations = make('div', 'equations');
    equations.append(
        this.equation(
            [...second, '= exp(', ['score', digits(score)], '−', ['logSumExp', digits(head.lse[i])], ')']),
        this.equation(
            [['score', digits(score)], '=', ['scale', digits(head.scale)], '×', ['product', digits(dot)]]),
        this.equation([
          ['product', digits(dot)], '=', ['|q|', digits(qNorm)], '×', ['|k|', digits(kNorm)], '×',
          ['cosine', digits(cosine)]
        ]));
    out.push(equations);
    out.push(this.components(head, i, j));
    return out;
  }

  equation(parts) {
    const line = make('div', 'equation');
    for (const part of parts) {
      if (typeof part === 'string') {
        line.append(make('span', 'sign', part));
        continue;
      }
      const [name, value, kind] = part;
      const term = make('span', kind ? 'value ' + kind : 'value');
      term.dataset.name = name;
      term.append(make('span', 'number', value), make('span', 'name', say(name) || name));
      line.append(term);
    }
    return line;
  }

  // q, k and q x k, component by component: where the product comes from.
  components(head, i, j) {
    const {size, q, k} = head;
    const figure = make('figure', 'components');
    const canvas = make('canvas');
    canvas.width = size;
    canvas.height = 3;
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', say('components'));
    const a = q.subarray(i * size, (i + 1) * size), b = k.subarray(j * size, (j + 1) * size);
    const product = a.map((x, d) => x * b[d]);
    const context = canvas.getContext('2d');
    [a, b, product].forEach((values, line) => {
      const image = context.createImageData(size, 1);
      paint(image, values, values.reduce((largest, x) => Math.max(largest, Math.abs(x)), 1e-9), 'score');
      context.putImageData(image, 0, line);
    });
    const names = make('div', 'component-names');
    for (const name of ['q', 'k', 'q × k']) names.append(make('span', '', name));
    figure.append(names, canvas, make('figcaption', 'hint', say('components')));
    return figure;
  }
}
