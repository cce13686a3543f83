'use strict';

// A run ends as a script does: when Node finds that nothing is left to do. But it does not wait for servers that
// listen, since a later run may be what asks them, or for work that an earlier run started.

const { immediateQueue, timerListMap } = require('internal/timers');

const { clearImmediate, clearTimeout } = globalThis;
const resources = process.getActiveResourcesInfo.bind(process);
const test = RegExp.prototype.test.bind(/zlib|crypto/);
const LASTING = Object.assign(Object.create(null), {
  TCPServerWrap: true,
  PipeServerWrap: true,
  UDPWrap: true,
  FSEventWrap: true,
  StatWatcher: true,
});

// What keeps Node from its end: work of this run; only what else there is; or nothing that is known here.
const WORK = 2;
const OTHER = 1;
const NOTHING = 0;

const LASTS = /^(Timeout|Immediate|ProcessWrap|FSEventWrap|StatWatcher|UDPWrap|(TCP|Pipe)(Server|Socket)Wrap)$/;
const lasts = RegExp.prototype.test.bind(LASTS);

let runs = 0;
let own = 0; // resources of the runner
const workers = []; // which Node does not list either: { worker, run }
let handle = null; // the symbol of a worker's property that tells whether Node waits for it; null once it has ended

process.on('worker', (worker) => {
  handle ??= Object.getOwnPropertySymbols(worker).find((symbol) => symbol.description === 'kHandle');
  if (runs > 0) workers[workers.length] = { worker, run: runs };
});

function count() {
  const names = resources();
  let all = names.length;
  let work = 0;
  for (let i = 0; i < names.length; i++) if (!LASTING[names[i]]) work++;
  let running = 0;
  for (let i = 0; i < workers.length; i++) {
    const { worker, run } = workers[i];
    if (!worker[handle]) continue;
    workers[running++] = workers[i];
    if (!worker[handle].hasRef()) continue;
    all++;
    if (run === runs) work++;
  }
  workers.length = running;
  return { all, work };
}

/**
 * Called when a run starts, in the callback of its request; returns a function that finds what keeps Node from its end.
 * `resting`: Node does not wait for the runner's own thread, so that this does not count.
 */
function startWork() {
  runs++;
  const { all, work: before } = count();
  if (runs === 1) own = all;
  // The read that brought the request is still counted here, and that thread is.
  return (resting) => {
    const now = count();
    const fewer = resting ? 0 : 1;
    if (now.all - fewer <= own - 2) return NOTHING;
    return now.work - fewer <= before - 2 ? OTHER : WORK;
  };
}

/** The kinds of what goes on after the runs that started it. */
function activeKinds() {
  const kinds = [];
  const names = resources();
  for (let i = 0; i < names.length; i++) if (lasts(names[i])) kinds[kinds.length] = names[i];
  for (let i = 0; i < workers.length; i++) if (workers[i].worker[handle]) kinds[kinds.length] = 'Worker';
  return kinds;
}

const modules = process.moduleLoadList;
let looked = 0;
let pooled = false;

/** Whether there can be work that Node waits for but does not list: what these modules do in Node's thread pool. */
function hasUnlistedWork() {
  for (; !pooled && looked < modules.length; looked++) pooled = test(modules[looked]);
  return pooled;
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

module.exports = { NOTHING, WORK, activeKinds, clearTimers, hasUnlistedWork, startWork };
