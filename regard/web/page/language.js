// The page's own words in English and Chinese.

const phrases = {
  en: {
    skip: 'Skip to the head',
    language: 'Language of this page',
    readingTitle: 'What a word looks at',
    direction: 'Direction',
    attendsTo: 'looks at',
    receives: 'is looked at by',
    unitsLabel: 'Unit',
    words: 'words',
    tokens: 'tokens',
    hideSpecial: 'hide special tokens and rescale',
    overviewTitle: 'All heads',
    overviewHint:
        'Rows are layers, columns are heads, counted from 0. Under each: what it does on this text, and its mean entropy in nats. Colours run from 0 to the head’s largest weight.',
    legendLabel: 'Heads by label',
    quantityLabel: 'Colour shows',
    weight: 'weight',
    score: 'score',
    gatherLabel: 'Cells smaller than a pixel show their',
    largest: 'largest',
    mean: 'mean',
    zoomIn: 'Zoom in',
    zoomOut: 'Zoom out',
    fit: 'fit',
    mapHint:
        'Rows look at columns. Click or Enter locks a row; arrows, Home, End, Page Up and Page Down move; + and − zoom (or Ctrl with the wheel), 0 fits, Esc frees the row.',
    noteTitle: 'What attention does not prove',
    note1:
        'A weight says how much of a position’s value vector a head mixed in. It does not say that the model’s answer depends on it: values can be small, later layers can undo the mix, and other weights often give the same output.',
    note2:
        'A label describes a head on this text only. Words in deep layers already carry their neighbours, so a row there is not purely that word. To test a cause, change the text or switch the head off and compare the results.',
    facts: (t) =>
        [t.model, t.architecture, `${t.layers} layers × ${t.heads} heads`,
         t.kvHeads && t.kvHeads !== t.heads ? `${t.kvHeads} key heads` : '', `${t.length} tokens`,
         t.causal ? 'causal: a token sees only itself and what precedes it' : 'every token sees every token',
         t.window ? `window of ${t.window} keys` : ''],
    cut: (t) => `The text was cut: ${t.length} of ${t.cut} tokens are shown.`,
    weakLabels: (t) => `Only ${t.length} tokens: the labels rest on few rows.`,
    textName: (name) => `Text ${name}`,
    layerHead: (l, h) => `Layer ${l} · Head ${h}`,
    entropy: (nats, share) => `mean entropy ${nats} nats, ${share} of an even spread`,
    headCell: (l, h, label, nats, share) =>
        `layer ${l} head ${h}: ${label}, entropy ${nats}, ${share} of an even spread`,
    notCarried: 'only its block map is in this page',
    missing: (exactMap) => exactMap ?
        'This page carries this head’s weights (rounded to 16 bits), not its q and k. This command makes a page with them:' :
        'This page carries only the block map of this head. This command makes a page with its exact weights:',
    copy: 'copy',
    copied: 'copied',
    blockShown: (n) => `Each block is ${n} × ${n} tokens; zoom in for single weights.`,
    blockOnly: (n) => `Each block is ${n} × ${n} tokens.`,
    rest: (n) => n === 1 ? '1 other' : `${n} others`,
    specials: 'special tokens',
    sinks: 'first and special tokens',
    firstToken: 'first token',
    remaining: 'on',
    bestTitle: (word) => `Where “${word}” looks most at another word`,
    bestTitleOn: (word, other) => `Where “${word}” looks most at “${other}”`,
    bestTitleFrom: (word) => `Who looks most at “${word}”`,
    bestCarried: (n) => `among the ${n} heads carried here`,
    bestAll: 'over all heads',
    meanAll: 'Mean over all heads:',
    rollout: 'Rollout through all layers:',
    choose: 'Point at a word, or lock one with a click.',
    blockStrip: 'Single weights of this head are not in this page.',
    readoutEmpty: 'Point at a cell to see its numbers.',
    logSumExp: 'log-sum-exp',
    scale: 'scale',
    cosine: 'cosine',
    product: 'q · k',
    hiddenPair: 'The mask hides this pair: a later token cannot be seen.',
    maskedPair: 'The mask hides this pair.',
    rescaled: (factor) => `× ${factor} after hiding special tokens`,
    strongestPair: (q, k, n) => `${
        n} token pairs, keys summed and queries averaged; the parts are of the strongest pair, ${q} → ${k}`,
    blockReadout: (mean, max) => `block: mean weight ${mean}, largest ${max}`,
    components: 'components of q, of k, and of their product',
    said: (row, column, r, c, weight, score) =>
        `row ${r} ${row}, column ${c} ${column}: weight ${weight}${score ? `, score ${score}` : ''}`,
    saidMasked: (row, column, r, c) => `row ${r} ${row}, column ${c} ${column}: hidden by the mask`,
    saidBlock: (row, column, r, c, mean, max) =>
        `row ${r} ${row}, column ${c} ${column}, in a block with mean weight ${mean} and largest ${max}`,
    saidFreed: 'row freed',
    mapLabel: (l, h) => `Attention of layer ${l} head ${h}, rows look at columns`,
    exact: 'Weights, scores and norms are recomputed in this page from float32 q, k and log-sum-exp.',
    approximate: 'q and k are kept in 16 bits here: weights are within about 1 % where scores stay below 30.',
    scaleName: (end) => `colour scale from 0 to ${end}, square root`,
    scaleNameScore: (end) => `colour scale from −${end} to ${end}`,
    labels: {
      previous: 'previous',
      next: 'next',
      self: 'self',
      first: 'first',
      special: 'special',
      'same token': 'same',
      induction: 'induction',
      broad: 'broad',
      mixed: 'mixed'
    },
    describe: {
      previous: 'looks at the token before',
      next: 'looks at the token after',
      self: 'looks at itself',
      first: 'rests on the first token',
      special: 'rests on special tokens',
      'same token': 'looks at the same token elsewhere',
      induction: 'looks at what followed the same token before',
      broad: 'spreads evenly',
      mixed: 'no single pattern'
    },
  },
  zh: {
    skip: '跳到注意力头',
    language: '页面语言',
    readingTitle: '一个词在看什么',
    direction: '方向',
    attendsTo: '它看谁',
    receives: '谁看它',
    unitsLabel: '单位',
    words: '词',
    tokens: '词元',
    hideSpecial: '隐藏特殊词元并重新归一',
    overviewTitle: '全部注意力头',
    overviewHint:
        '行是层，列是头，都从 0 数起。下面写着它在这段文字上做什么，以及平均熵（奈特）。颜色从 0 到这个头的最大权重。',
    legendLabel: '按标签看头',
    quantityLabel: '颜色表示',
    weight: '权重',
    score: '分数',
    gatherLabel: '小于一个像素的格子取',
    largest: '最大值',
    mean: '平均值',
    zoomIn: '放大',
    zoomOut: '缩小',
    fit: '全图',
    mapHint:
        '行看列。点击或回车锁定一行；方向键、Home、End、翻页键移动；+ 和 − 缩放（或 Ctrl 加滚轮），0 看全图，Esc 解锁。',
    noteTitle: '注意力不能证明什么',
    note1:
        '权重只说明一个头把某个位置的值向量混进了多少，并不说明模型的答案取决于它：值向量可能很小，后面的层可能抵消它，别的权重也常常给出同样的输出。',
    note2:
        '标签只描述这个头在这段文字上的表现。深层的词已经带有邻近词的信息，那里的一行不只是这个词本身。要检验因果，请改动文字或关掉这个头，再比较结果。',
    facts: (t) =>
        [t.model, t.architecture, `${t.layers} 层 × ${t.heads} 头`,
         t.kvHeads && t.kvHeads !== t.heads ? `${t.kvHeads} 个键头` : '', `${t.length} 个词元`,
         t.causal ? '因果：词元只看自己和前面的词元' : '每个词元都看全部词元',
         t.window ? `窗口 ${t.window} 个键` : ''],
    cut: (t) => `文字被截断：共 ${t.cut} 个词元，这里是前 ${t.length} 个。`,
    weakLabels: (t) => `只有 ${t.length} 个词元：标签的依据很少。`,
    textName: (name) => `文本 ${name}`,
    layerHead: (l, h) => `第 ${l} 层 · 第 ${h} 头`,
    entropy: (nats, share) => `平均熵 ${nats} 奈特，为均匀分布的 ${share}`,
    headCell: (l, h, label, nats, share) =>
        `第 ${l} 层第 ${h} 头：${label}，熵 ${nats}，为均匀分布的 ${share}`,
    notCarried: '本页只有它的分块图',
    missing: (exactMap) => exactMap ?
        '本页带有这个头的权重（16 位），没有它的 q 和 k。用这条命令生成带有它们的页面：' :
        '本页只有这个头的分块图。用这条命令生成带有精确权重的页面：',
    copy: '复制',
    copied: '已复制',
    blockShown: (n) => `每块 ${n} × ${n} 个词元；放大可看单个权重。`,
    blockOnly: (n) => `每块 ${n} × ${n} 个词元。`,
    rest: (n) => `其余 ${n} 个`,
    specials: '特殊词元',
    sinks: '首词元和特殊词元',
    firstToken: '首词元',
    remaining: '落在',
    bestTitle: (word) => `“${word}”最关注别的词的头`,
    bestTitleOn: (word, other) => `“${word}”最关注“${other}”的头`,
    bestTitleFrom: (word) => `最关注“${word}”的头`,
    bestCarried: (n) => `在本页带有的 ${n} 个头中`,
    bestAll: '在全部头中',
    meanAll: '全部头的平均：',
    rollout: '逐层传播（rollout）：',
    choose: '把指针移到一个词上，或点击锁定它。',
    blockStrip: '本页没有这个头的单个权重。',
    readoutEmpty: '把指针移到一个格子上看它的数值。',
    logSumExp: 'log-sum-exp',
    scale: '缩放',
    cosine: '余弦',
    product: 'q · k',
    hiddenPair: '掩码遮住了这一对：看不到后面的词元。',
    maskedPair: '掩码遮住了这一对。',
    rescaled: (factor) => `隐藏特殊词元后 × ${factor}`,
    strongestPair: (q, k, n) => `共 ${n} 对词元，键相加、查询取平均；分解属于最强的一对 ${q} → ${k}`,
    blockReadout: (mean, max) => `所在块：平均权重 ${mean}，最大 ${max}`,
    components: 'q、k 及其乘积的各分量',
    said: (row, column, r, c, weight, score) =>
        `第 ${r} 行 ${row}，第 ${c} 列 ${column}：权重 ${weight}${score ? `，分数 ${score}` : ''}`,
    saidMasked: (row, column, r, c) => `第 ${r} 行 ${row}，第 ${c} 列 ${column}：被掩码遮住`,
    saidBlock: (row, column, r, c, mean, max) =>
        `第 ${r} 行 ${row}，第 ${c} 列 ${column}，所在块平均权重 ${mean}，最大 ${max}`,
    saidFreed: '已解锁',
    mapLabel: (l, h) => `第 ${l} 层第 ${h} 头的注意力，行看列`,
    exact: '权重、分数和范数由本页用 float32 的 q、k 和 log-sum-exp 重新算出。',
    approximate: '这里的 q 和 k 是 16 位：分数不超过 30 时权重误差约在 1 % 以内。',
    scaleName: (end) => `色标 0 到 ${end}，平方根`,
    scaleNameScore: (end) => `色标 −${end} 到 ${end}`,
    labels: {
      previous: '前一个',
      next: '后一个',
      self: '自己',
      first: '首词元',
      special: '特殊',
      'same token': '同词',
      induction: '归纳',
      broad: '均匀',
      mixed: '混合'
    },
    describe: {
      previous: '看前一个词元',
      next: '看后一个词元',
      self: '看自己',
      first: '停在首词元上',
      special: '停在特殊词元上',
      'same token': '看别处的同一个词元',
      induction: '看上次同一词元后面的词元',
      broad: '均匀分散',
      mixed: '没有单一模式'
    },
  },
};

let language = 'en';
function say(key, ...values) {
  const phrase = phrases[language][key];
  return typeof phrase === 'function' ? phrase(...values) : phrase;
}
const labelName = (label) => phrases[language].labels[label] || label;
const labelMeaning = (label) => phrases[language].describe[label] || label;

function translatePage() {
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
  for (const element of document.querySelectorAll('[data-t]')) element.textContent = say(element.dataset.t);
  for (const element of document.querySelectorAll('[data-t-label]')) {
    element.setAttribute('aria-label', say(element.dataset.tLabel));
    element.title = say(element.dataset.tLabel);
  }
}

// A weight or score with three decimals or so: float32 q and k give a score to about 1e-6 of its size.
function digits(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 0.0005) return value.toExponential(1).replace('-', '−');
  return value.toFixed(size < 0.1 ? 4 : size < 100 ? 3 : 1).replace('-', '−');
}
const two = (value) => value.toFixed(2);
const percent = (value) => (100 * value).toFixed(value < 0.0995 ? 1 : 0) + ' %';

// A token fit for a label: white space is made visible.
function shown(text) {
  if (text === '') return '∅';
  if (/^\s+$/.test(text)) return text.replace(/\r?\n/g, '⏎').replace(/\t/g, '⇥').replace(/\s/g, '␣');
  return text.replace(/\s+/g, ' ').trim();
}
