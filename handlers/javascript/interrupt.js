'use strict';

// SIGINT for a thread that may be busy. A thread waits inside a script that SIGINT breaks; it tells the main thread, and
// when that does not answer, it terminates what runs there. This also stops loops that run after an `await` or in a timer,
// which vm's own `breakOnSigint` cannot.

const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const RUN = 0; // Number of the run that may be interrupted, one more after each termination; 0, or HELD.
const READY = 1;
const INTERRUPTED = 2; // Number of the last run that SIGINT has reached.
const NEVER = 3;
const HELD = -1; // While a termination is being asked for.
const NUMBERS = 1 << 10; // From one run's number to the next one's.
const PATIENCE = 20; // Twice as long each time.

class Watch {
  constructor(stop) {
    this.cells = new Int32Array(new SharedArrayBuffer(16));
    this.count = 0;
    this.ready = false;
    // The worker also keeps the process alive while a run waits for nothing but its own promise.
    const worker = new Worker(__filename, { workerData: this.cells });
    worker.on('message', (number) => {
      if (number !== load(this.cells, RUN)) return;
      stop();
    });
  }

  begin() {
    if (!this.ready) wait(this.cells, READY, 0);
    this.ready = true;
    this.count = (this.count % (1 << 30)) + NUMBERS;
    store(this.cells, RUN, this.count);
  }

  /** Whether SIGINT has reached this run. When a child died of it, it may still be on its way here. */
  interrupted(expected) {
    const last = load(this.cells, INTERRUPTED);
    if (expected && last !== this.count) wait(this.cells, INTERRUPTED, last, 50);
    return load(this.cells, INTERRUPTED) === this.count;
  }

  /** Lets nothing interrupt what comes next. A termination that is on its way hits in here, and another call is due. */
  end() {
    let number = this.count;
    while (compareExchange(this.cells, RUN, number, 0) !== number) {
      wait(this.cells, RUN, HELD);
      number = load(this.cells, RUN);
      if (number === 0) return;
      // One to see it, one to be hit.
      for (let turn = 0; turn < 2; turn++) wait(this.cells, NEVER, 0, 1);
    }
    notify(this.cells, RUN);
  }
}

const { compareExchange, load, notify, store, wait } = Atomics;

let held = 0; // What RUN was before it was HELD.

// SIGINT can end this at any point; it is called again then.
function interrupt(cells) {
  if (compareExchange(cells, RUN, HELD, held + 1) === HELD) notify(cells, RUN);
  let number = load(cells, RUN);
  if (number === 0) return;
  store(cells, INTERRUPTED, number - (number % NUMBERS));
  notify(cells, INTERRUPTED);
  for (let patience = PATIENCE; ; patience *= 2) {
    // Each time: a termination may hit the main thread while it takes the message.
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
  const { Session } = require('inspector');
  const session = new Session();
  session.connectToMainThread();
  session.post('Runtime.terminateExecution');
  session.disconnect();
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
  // Node gives SIGINT its deadly default back when the last breakable script ends: the outer one never does.
  const outer = breakable('loop()');
  for (;;) interrupted = outer();
}

if (isMainThread) module.exports = { Watch };
else watch(workerData);
