'use strict';

// Handles SIGINT although the main thread may be busy. A worker thread waits inside a script that SIGINT breaks. Then it
// sends a message to the main thread, and if that does not answer, it terminates the code that runs there. This also stops
// loops after an `await` or in a timer, which vm's own `breakOnSigint` cannot stop.

const { Session } = require('inspector');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const RUN = 0; // Number of the run that can be interrupted, plus one for each termination; 0 if none; or HELD.
const READY = 1;
const INTERRUPTED = 2; // Number of the last run that received SIGINT.
const NEVER = 3;
const HELD = -1; // While a termination is being requested.
const NUMBERS = 1 << 10; // The difference between the numbers of two runs.
const PATIENCE = 20; // Milliseconds to wait for an answer; doubled each time.

class Watch {
  constructor(stop) {
    this.cells = new Int32Array(new SharedArrayBuffer(16));
    this.count = 0;
    this.ready = false;
    this.resting = false;
    this.worker = new Worker(__filename, { workerData: this.cells });
    this.worker.on('message', (number) => {
      if (number !== load(this.cells, RUN)) return;
      stop();
    });
  }

  /** Whether Node ends if it waits for nothing but interrupts. */
  rest(resting) {
    if (this.resting === resting) return;
    this.resting = resting;
    if (resting) this.worker.unref();
    else this.worker.ref();
  }

  begin() {
    if (!this.ready) wait(this.cells, READY, 0);
    this.ready = true;
    this.count = (this.count % (1 << 30)) + NUMBERS;
    store(this.cells, RUN, this.count);
  }

  /** Whether this run received SIGINT. If a child died of it (`expected`), the signal may still be on its way here. */
  interrupted(expected) {
    const last = load(this.cells, INTERRUPTED);
    if (expected && last !== this.count) wait(this.cells, INTERRUPTED, last, 50);
    return load(this.cells, INTERRUPTED) === this.count;
  }

  /** Ends interrupts for this run. A termination that is already on its way hits in here; then this is called again. */
  end() {
    let number = this.count;
    while (compareExchange(this.cells, RUN, number, 0) !== number) {
      wait(this.cells, RUN, HELD);
      number = load(this.cells, RUN);
      if (number === 0) return;
      // In the first turn the termination is noticed, in the second it hits.
      for (let turn = 0; turn < 2; turn++) wait(this.cells, NEVER, 0, 1);
    }
    notify(this.cells, RUN);
  }
}

const { compareExchange, load, notify, store, wait } = Atomics;
const { setImmediate } = globalThis;

let held = 0; // What RUN was before it was HELD.

// SIGINT can end this function at any point; it is then called again.
function interrupt(cells) {
  if (compareExchange(cells, RUN, HELD, held + 1) === HELD) notify(cells, RUN);
  let number = load(cells, RUN);
  if (number === 0) return;
  store(cells, INTERRUPTED, number - (number % NUMBERS));
  notify(cells, INTERRUPTED);
  for (let patience = PATIENCE; ; patience *= 2) {
    // Sent again each time: a termination may hit the main thread while it handles the message.
    parentPort.postMessage(number);
    if (wait(cells, RUN, number, patience) !== 'timed-out') return;
    held = number;
    if (compareExchange(cells, RUN, number, HELD) !== number) return;
    terminate();
    store(cells, RUN, ++number);
    notify(cells, RUN);
  }
}

function terminate() {
  const session = new Session();
  session.connectToMainThread();
  session.post('Runtime.terminateExecution');
  session.disconnect();
}

/** Ends what runs on this thread, which cannot catch that, and then calls the function. */
function terminateHere(then) {
  const session = new Session();
  session.connect();
  setImmediate(() => {
    session.disconnect();
    then();
  });
  session.post('Runtime.terminateExecution');
  for (;;);
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
  let interrupted = false;
  globalThis.loop = () => {
    for (;;) {
      if (interrupted) interrupt(cells);
      interrupted = inner();
    }
  };
  // When the last breakable script ends, Node restores the deadly default of SIGINT: so the outer script never ends.
  const outer = breakable('loop()');
  for (;;) interrupted = outer();
}

if (isMainThread) module.exports = { Watch, terminateHere };
else watch(workerData);
