'use strict';

// A run ends as a script does: when the work that it started is done. It does not wait for servers that listen, since a
// later run may be what asks them, or for work that an earlier run started.

const { immediateQueue, timerListMap } = require('internal/timers');

const { clearImmediate, clearTimeout } = globalThis;
const resources = process.getActiveResourcesInfo.bind(process);
const LASTING = Object.assign(Object.create(null), {
  TCPServerWrap: true,
  PipeServerWrap: true,
  UDPWrap: true,
  FSEventWrap: true,
  StatWatcher: true,
});

// Workers that this run started; Node does not count them among its resources.
const workers = [];
let handle = null; // the symbol of a worker's property that tells whether Node waits for it; null once it has ended

process.on('worker', (worker) => {
  handle ??= Object.getOwnPropertySymbols(worker).find((symbol) => symbol.description === 'kHandle');
  workers[workers.length] = worker;
});

function count() {
  const names = resources();
  let held = 0;
  for (let i = 0; i < names.length; i++) if (!LASTING[names[i]]) held++;
  let running = 0;
  for (let i = 0; i < workers.length; i++) {
    if (!workers[i][handle]) continue;
    if (workers[i][handle].hasRef()) held++;
    workers[running++] = workers[i];
  }
  workers.length = running;
  return held;
}

/** Called when a run starts, in the callback of its request; returns a function that checks whether its work is done. */
function settled() {
  workers.length = 0;
  const before = count() - 1; // The read that brought the request is still counted.
  return () => count() <= before;
}

/** Stops the timers of code that was stopped; otherwise its loops would print into later runs. */
function clearTimers() {
  for (const duration in timerListMap) {
    const list = timerListMap[duration];
    for (let timer = list._idlePrev; timer && timer !== list; ) {
      const newer = timer._idlePrev;
      if (timer.hasRef && timer.hasRef()) clearTimeout(timer); // Node's own timers have no reference.
      timer = newer;
    }
  }
  for (let immediate = immediateQueue.head; immediate; ) {
    const newer = immediate._idleNext;
    clearImmediate(immediate);
    immediate = newer;
  }
}

module.exports = { clearTimers, settled };
