// For the locked word: the heads in which it looks most at another word (or is looked at most).

function bestHeads(text, unit) {
  const units = unitsOf(text);
  if (isFocus(text, unit) && (!text.everyWeight || text.focus.on >= 0))
    return {
      all: true,
      list: text.focus.heads.map((head) => ({...head, unit: units.unitOf[head.token]}))
                .filter((head) => head.unit >= 0)
    };
  const list = [];
  for (const {layer, head} of text.everyWeight ? text.grid : text.carried) {
    const field = fieldOf(text, layer, head);
    const weights = state.direction === 'to' ? field.row(unit) : field.column(unit);
    let best = -1;
    weights.forEach((weight, u) => {
      const other = units.list[u];
      if (u === unit || units.isSink(u) || other.punctuation) return;
      if (best < 0 || weight > weights[best]) best = u;
    });
    if (best >= 0 && weights[best] > 0) list.push({layer, head, unit: best, weight: weights[best]});
  }
  list.sort((a, b) => b.weight - a.weight);
  return {all: text.everyWeight, list: list.slice(0, 8)};
}

// Is this the word that the report was made for, in the same units?
function isFocus(text, unit) {
  const {focus} = text, units = unitsOf(text);
  return state.direction === 'to' && focus.token >= 0 && units.unitOf[focus.token] === unit &&
      focus.words === units.words && text.specialHidden === units.hide;
}

function showBest() {
  const box = byId('best');
  const text = currentText();
  const unit = state.locked >= 0 ? unitsOf(text).unitOf[state.locked] : -1;
  if (unit < 0) {
    box.replaceChildren();
    return;
  }
  const word = shown(unitsOf(text).list[unit].text);
  const {all, list} = bestHeads(text, unit);
  const wanted = isFocus(text, unit) && text.focus.on >= 0 ?
      unitsOf(text).list[unitsOf(text).unitOf[text.focus.on]] :
      null;
  const name = wanted ? 'bestTitleOn' : state.direction === 'to' ? 'bestTitle' : 'bestTitleFrom';
  const title = make('h3', '', say(name, word, wanted ? shown(wanted.text) : ''));
  title.append(make('span', 'hint', ' ' + say(all ? 'bestAll' : 'bestCarried', text.carried.length)));
  const row = make('div', 'chips');
  for (const {layer, head, unit: other, weight} of list) {
    const chip = make('button', 'chip');
    chip.type = 'button';
    const kind = text.headOf.get(`${layer}.${head}`);
    chip.append(
        make('span', 'chip-head', `${layer}·${head}`),
        wordIn('span', 'chip-word', shown(unitsOf(text).list[other].text)),
        make('span', 'number', two(weight)), make('span', 'chip-label', labelName(kind.label)));
    chip.title = `${say('layerHead', layer, head)}: ${labelMeaning(kind.label)}`;
    chip.setAttribute('aria-pressed', layer === state.layer && head === state.head);
    chip.addEventListener('click', () => set({layer, head}));
    row.append(chip);
  }
  box.replaceChildren(...(list.length ? [title, row] : []));
  if (text.focus.reason && isFocus(text, unit)) title.append(make('span', 'hint', ` · ${text.focus.reason}`));
  const strip = strips[text.index];
  const line = (name, weights) => {
    const element = make('p', 'mixture small');
    element.append(make('span', 'quiet', say(name) + ' '), ...strip.mixture(unit, weights));
    box.append(element);
  };
  if (text.everyWeight)
    line('meanAll', meanWeights(text, unit));
  else if (isFocus(text, unit) && text.focus.mean.length === unitsOf(text).count)
    line('meanAll', text.focus.mean);
  if (isFocus(text, unit) && text.focus.rollout.length === unitsOf(text).count)
    line('rollout', text.focus.rollout);
}

function meanWeights(text, unit) {
  const mean = new Float64Array(unitsOf(text).count);
  for (const {layer, head} of text.grid) {
    const field = fieldOf(text, layer, head);
    const weights = state.direction === 'to' ? field.row(unit) : field.column(unit);
    weights.forEach((weight, u) => {
      mean[u] += weight / text.grid.length;
    });
  }
  return mean;
}
