// Puts the parts together.

let strips = [];

function showFacts() {
  const text = currentText();
  byId('facts').textContent = say('facts', text).filter(Boolean).join(' · ');
  document.title = `Regard: ${(text.text || text.model).slice(0, 60)}`;
  const notes = texts.flatMap((each) => [...(each.cut ? [say('cut', each)] : []), ...each.warnings]);
  byId('warnings').replaceChildren(...[...new Set(notes)].map((note) => make('p', 'warning', note)));
  byId('exactness').textContent =
      say(texts.some((each) => each.approximate || each.type === 'f16') ? 'approximate' : 'exact') +
      (text.weak ? ' ' + say('weakLabels', text) : '') + ` Regard ${program}.`;
  byId('hide-box').hidden = !text.tokens.some((token) => token.special);
  byId('units').hidden = !text.words.length;
}

// Title and facts of the chosen head, and how to get it where it is not carried.
function showHead() {
  const text = currentText();
  const facts = text.headOf.get(`${state.layer}.${state.head}`);
  const title = byId('head-title');
  title.replaceChildren(
      document.createTextNode(say('layerHead', state.layer, state.head)), document.createTextNode(' '),
      make('span', 'tag', `${labelName(facts.label)} ${two(facts.score)}`));
  const exact = text.carriedOf.has(`${state.layer}.${state.head}`);
  const notes = [labelMeaning(facts.label), say('entropy', two(facts.entropy), percent(facts.share || 0))];
  if (map && map.blocky) notes.push(say(exact ? 'blockShown' : 'blockOnly', text.blockTokens));
  byId('head-facts').textContent = notes.join(' · ');
  const missing = byId('missing');
  missing.hidden = exact;
  if (exact) return;
  const command = make(
      'code', '',
      `${text.command} --layer ${state.layer} --head ${state.head} --html head-${state.layer}-${
          state.head}.html`);
  command.tabIndex = 0;
  const copy = make('button', '', say('copy'));
  copy.type = 'button';
  copy.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(command.textContent);
      copy.textContent = say('copied');
    } catch {
      getSelection().selectAllChildren(command);
    }
  });
  missing.replaceChildren(make('p', '', say('missing', text.blockTokens === 1)), command, copy);
}

let map = null;
let program = '';

function start() {
  const data = readTexts();
  program = data.program;
  texts = data.texts;
  if (/^zh/.test(navigator.language)) language = 'zh';
  const {focus, carried, grid} = texts[0];
  // Heads that only follow places tell the least of a text.
  const placed = new Set(['previous', 'next', 'self', 'first', 'broad']);
  const telling = focus.on >= 0 ?
      null :
      focus.heads.find(({layer, head}) => !placed.has(texts[0].headOf.get(`${layer}.${head}`).label));
  const first = telling || focus.heads[0] || carried[0] || grid[0];
  state.layer = first.layer;
  state.head = first.head;
  state.words = focus.words && texts[0].words.length > 0;
  state.locked = focus.token;
  state.hide = texts[0].specialHidden;
  readAddress();
  if (state.locked >= 0) Object.assign(state, strongestPair(unitsOf(currentText()).unitOf[state.locked]));

  translatePage();
  strips = texts.map((text) => new Strip(text, texts.length > 1));
  byId('strips').append(...strips.map((strip) => strip.box));
  const overview = new Overview();
  map = new HeadMap();
  const readout = new Readout();
  new MapInput(map);

  const updates = [
    segment('direction', () => state.direction, (value) => set({direction: value})),
    segment(
        'units', () => state.words ? 'words' : 'tokens',
        (value) => keepPlace(() => set({words: value === 'words'}))),
    segment('quantity', () => state.quantity, (value) => set({quantity: value})),
    segment('gather', () => state.gather, (value) => set({gather: value})),
    segment(
        'language', () => language,
        (value) => {
          language = value;
          translatePage();
          notify(new Set(['language']));
        }),
  ];
  const hide = byId('hide');
  hide.checked = state.hide;
  hide.addEventListener('change', () => keepPlace(() => set({hide: hide.checked})));

  function notify(changed) {
    const pointOnly = [...changed].every((name) => name === 'row' || name === 'column');
    if (!pointOnly) {
      showFacts();
      showHead();
      overview.update(changed);
      if (['all', 'language', 'text', 'locked', 'words', 'hide', 'direction', 'layer', 'head'].some(
              (name) => changed.has(name)))
        showBest();
      updates.forEach((update) => update());
      writeAddress();
    }
    map.update(changed);
    readout.update();
    for (const strip of strips) strip.update(changed);
  }
  onChange(notify);
  addEventListener('hashchange', () => {
    readAddress();
    if (state.locked >= 0) Object.assign(state, strongestPair(unitsOf(currentText()).unitOf[state.locked]));
    translatePage();
    notify(new Set(['all', 'text', 'words', 'hide', 'language']));
  });
  notify(new Set(['all']));
}

// Rows and columns are counted anew when units change: the pair of tokens stays where it was.
function keepPlace(change) {
  const place = (u, units) => u >= 0 && u < units.count ? units.list[u].first : -1;
  const before = unitsOf(currentText());
  const row = place(state.row, before), column = place(state.column, before);
  Object.assign(state, {row: -1, column: -1});
  change();
  const after = unitsOf(currentText());
  set({row: row >= 0 ? after.unitOf[row] : -1, column: column >= 0 ? after.unitOf[column] : -1});
}

start();
