'use strict';

// Shows values and errors as Node does, without stack frames of the runner or of Node's internals.

const { EventEmitter } = require('events');
const { Immediate, Timeout } = require('internal/timers');
const util = require('util');

const { inspect } = util;
// Objects that are no results: methods of most return the object itself, and what is inside is long.
const MACHINES = [EventEmitter, EventTarget, Immediate, Timeout];
const OUTLINE = { depth: -1, customInspect: false };
const RESULT = 20000;
const INTERNAL = new RegExp(`^\\s+at .*(?:FSReqCallback|${escape(__dirname)}/|node:vm:|node:internal/)[^{]*( \\{)?$`);
// The first frame of a stack that is not the runner's.
const FRAME = new RegExp(`\\n +at (?!.*${escape(__dirname)}/)(?:.* \\()?(<cell \\d+>):(\\d+):(\\d+)\\)?(?:\\n|$)`);
const call = Function.prototype.call;
const slice = call.bind(String.prototype.slice);
const split = call.bind(String.prototype.split);
const exec = call.bind(RegExp.prototype.exec);

function escape(text) {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}

let outlines = false;

// What results contain of them is one word, such as `[Socket]`. To code, this is as if it were not there.
Object.defineProperty(EventEmitter.prototype, inspect.custom, {
  configurable: true,
  writable: true,
  value() {
    return outlines ? inspect(this, OUTLINE) : this;
  },
});

/** A value as text; null if it is none to look at. */
function inspectValue(value) {
  for (let i = 0; i < MACHINES.length; i++) if (value instanceof MACHINES[i]) return null;
  let shown;
  outlines = true;
  try {
    shown = inspect(value);
  } finally {
    outlines = false;
  }
  return slice(util.types.isNativeError(value) ? clean(shown) : shown, 0, RESULT);
}

/** What Node prints for an error that nothing catches; `cell` is the code that may have thrown it. */
function describe(error, cell) {
  try {
    const shown = inspect(error);
    return (util.types.isNativeError(error) ? place(error, cell) + clean(shown) : `Uncaught ${shown}`) + '\n';
  } catch {
    return 'Uncaught exception that cannot be shown\n';
  }
}

/** The line of the code that threw the error. */
function place(error, cell) {
  const frame = exec(FRAME, error.stack);
  if (!frame || frame[1] !== cell?.filename) return '';
  const line = split(cell.code, '\n')[frame[2] - 1];
  return `${frame[1]}:${frame[2]}\n${line}\n${' '.repeat(cell.columnOf(+frame[2], frame[3] - 1))}^\n\n`;
}

function clean(shown) {
  const lines = split(shown, '\n');
  let text = '';
  for (let i = 0; i < lines.length; i++) {
    const frame = exec(INTERNAL, lines[i]);
    if (!frame) text += (i ? '\n' : '') + lines[i];
    else if (frame[1]) text += ' {'; // The list of properties after the stack begins on its last line.
  }
  return text;
}

module.exports = { describe, inspectValue };
