'use strict';

// Shows values and errors as Node does, without stack frames of the runner or of Node's internals.

const util = require('util');

const { inspect } = util;
const RESULT = 20000;
const INTERNAL = new RegExp(`^\\s+at .*(?:FSReqCallback|${escape(__dirname)}/|node:vm:|node:internal/)[^{]*( \\{)?$`);
const call = Function.prototype.call;
const slice = call.bind(String.prototype.slice);
const split = call.bind(String.prototype.split);
const exec = call.bind(RegExp.prototype.exec);

function escape(text) {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}

function inspectValue(value) {
  return slice(inspect(value), 0, RESULT);
}

function describe(error) {
  try {
    const shown = inspect(error);
    return (util.types.isNativeError(error) ? clean(shown) : `Uncaught ${shown}`) + '\n';
  } catch {
    return 'Uncaught exception that cannot be shown\n';
  }
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
