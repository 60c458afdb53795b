// Small parts that several places use.

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// A word or token as people read it: its direction is its own.
function wordIn(tag, className, text) {
  const element = make(tag, className, text);
  element.dir = 'auto';
  return element;
}

// A row of buttons of which one is chosen: one tab stop, arrows move.
function segment(id, read, write) {
  const group = byId(id);
  const buttons = [...group.querySelectorAll('button')];
  const update = () => {
    for (const button of buttons) {
      const chosen = button.dataset.value === read();
      button.setAttribute('aria-checked', chosen);
      button.tabIndex = chosen ? 0 : -1;
    }
  };
  for (const button of buttons)
    button.addEventListener('click', () => {
      write(button.dataset.value);
      update();
    });
  group.addEventListener('keydown', (event) => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    const at = buttons.findIndex((button) => button.dataset.value === read());
    const next = buttons[(at + step + buttons.length) % buttons.length];
    write(next.dataset.value);
    update();
    next.focus();
  });
  update();
  return update;
}

let announceTimer = 0;
function announce(message) {
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => {
    byId('live').textContent = message;
  }, 120);
}

// Runs f once in the next frame, however often it is asked for before.
function eachFrame(f) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      f();
    });
  };
}
