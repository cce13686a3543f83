'use strict';

// SIGINT for a thread that may be busy. A thread waits inside a script that SIGINT breaks; it tells the main thread, and
// when that does not answer, it terminates what runs there. This also stops loops that run after an `await` or in a timer,
// which vm's own `breakOnSigint` cannot.

const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const RUN = 0; // Number of the run that may be interrupted, or 0.
const READY = 1;
const INTERRUPTED = 2; // Number of the last run that SIGINT has reached.
const NEVER = 3;
const PATIENCE = 20;
const AGAIN = 400; // Longer, so that a second termination does not hit the runner while it answers the first.

class Watch {
  constructor(stop) {
    this.cells = new Int32Array(new SharedArrayBuffer(16));
    this.count = 0;
    this.ready = false;
    // The worker also keeps the process alive while a run waits for nothing but its own promise.
    const worker = new Worker(__filename, { workerData: this.cells });
    worker.on('message', (number) => {
      if (number !== load(this.cells, RUN)) return;
      this.end();
      stop();
    });
  }

  begin() {
    if (!this.ready) wait(this.cells, READY, 0);
    this.ready = true;
    this.count = (this.count % 0x7ffffff0) + 1;
    store(this.cells, RUN, this.count);
  }

  /** Whether SIGINT has reached this run. When a child died of it, it may still be on its way here. */
  interrupted(expected) {
    const last = load(this.cells, INTERRUPTED);
    if (expected && last !== this.count) wait(this.cells, INTERRUPTED, last, 50);
    return load(this.cells, INTERRUPTED) === this.count;
  }

  end() {
    store(this.cells, RUN, 0);
    notify(this.cells, RUN);
  }
}

const { load, notify, store, wait } = Atomics;

function interrupt(cells) {
  const number = load(cells, RUN);
  if (number === 0) return;
  store(cells, INTERRUPTED, number);
  notify(cells, INTERRUPTED);
  parentPort.postMessage(number);
  for (let patience = PATIENCE; wait(cells, RUN, number, patience) === 'timed-out'; patience = AGAIN) {
    const { Session } = require('inspector');
    const session = new Session();
    session.connectToMainThread();
    session.post('Runtime.terminateExecution');
    session.disconnect();
  }
}

function watch(cells) {
  const vm = require('vm');
  const breakable = (source) => {
    const script = new vm.Script(source);
    return () => {
      try {
        script.runInThisContext({ breakOnSigint: true });
      } catch {
        return true;
      }
    };
  };
  globalThis.wait = () => {
    store(cells, READY, 1);
    notify(cells, READY);
    wait(cells, NEVER, 0);
  };
  const inner = breakable('wait()');
  globalThis.loop = () => {
    for (;;) if (inner()) interrupt(cells);
  };
  // Node gives SIGINT its deadly default back when the last breakable script ends: the outer one never does.
  const outer = breakable('loop()');
  for (;;) outer();
}

if (isMainThread) module.exports = { Watch };
else watch(workerData);
