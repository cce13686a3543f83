'use strict';

// A run ends as a script does: when the work that it started is done. It does not wait for servers that listen or for
// work that an earlier run started.

const { immediateQueue, timerListMap } = require('internal/timers');

const { clearImmediate, clearTimeout } = globalThis;
const resources = process.getActiveResourcesInfo.bind(process);
const LASTING = Object.assign(Object.create(null), {
  TCPServerWrap: true,
  PipeServerWrap: true,
  UDPWrap: true,
  FSEventWrap: true,
  StatWatcher: true,
  MessagePort: true,
});

function count() {
  const names = resources();
  let held = 0;
  for (let i = 0; i < names.length; i++) if (!LASTING[names[i]]) held++;
  return held;
}

/** Called when a run starts, in the callback of its request; returns a function that checks whether its work is done. */
function settled() {
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
