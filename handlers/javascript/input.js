'use strict';

// The standard input of a run: a file without a name. Node cannot duplicate a descriptor, but a file that is opened gets the
// lowest number that is free.

const { ReadStream, closeSync, openSync, unlinkSync, writeFileSync } = require('fs');

const usual = Object.getOwnPropertyDescriptor(process, 'stdin');
let given = false;

function giveInput(text) {
  const path = `${process.env.HOME}/.stdin-${process.pid}`;
  writeFileSync(path, text, { flag: 'wx', mode: 0o600 });
  reopen(path);
  unlinkSync(path);
  given = true;
  let stream;
  const get = () => (stream ??= new ReadStream(null, { fd: 0, autoClose: false }));
  Object.defineProperty(process, 'stdin', { configurable: true, enumerable: true, get });
}

function takeInput() {
  if (!given) return;
  given = false;
  reopen('/dev/null');
  Object.defineProperty(process, 'stdin', usual);
}

function reopen(path) {
  try {
    closeSync(0);
  } catch {
    // The code has closed it.
  }
  openSync(path, 'r');
}

module.exports = { giveInput, takeInput };
