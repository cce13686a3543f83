'use strict';

// Synchronous output: everything that the code printed is in the pipe before the frame that ends the run.

const fs = require('fs');
const { Writable } = require('stream');

const { writeSync } = fs;
const { from } = Buffer;
const wait = Atomics.wait.bind(Atomics);
const clock = new Int32Array(new SharedArrayBuffer(4));

function writeAll(fd, data) {
  const bytes = typeof data === 'string' ? from(data) : data;
  let at = 0;
  while (at < bytes.length) {
    try {
      at += writeSync(fd, bytes, at, bytes.length - at);
    } catch (error) {
      // A child may have made the shared pipe non-blocking.
      if (error.code !== 'EAGAIN') throw error;
      wait(clock, 0, 0, 1);
    }
  }
}

class Output extends Writable {
  constructor(fd) {
    super({ autoDestroy: false });
    this.fd = fd;
    this.isTTY = false;
  }

  _write(chunk, encoding, done) {
    try {
      writeAll(this.fd, chunk);
      done();
    } catch (error) {
      done(error);
    }
  }

  // As far as its user sees, it ends; the next run needs it again.
  end(...given) {
    const done = typeof given.at(-1) === 'function' ? given.pop() : null;
    if (given.length && given[0] !== null) this.write(...given);
    process.nextTick(() => {
      this.emit('finish');
      done?.();
    });
    return this;
  }

  destroy() {
    return this;
  }
}

function replaceStandardStreams() {
  for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
    const stream = new Output(fd);
    Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => stream });
  }
}

module.exports = { replaceStandardStreams, writeAll };
