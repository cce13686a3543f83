'use strict';

// The protocol is in ../README.md. handler.toml starts this file with an empty standard input and with duplicates of the
// three standard streams as the descriptors below, because Node cannot duplicate a descriptor. Node hides descriptors above
// 2 from children. Everything that the loop needs after user code ran is bound here: code may replace any global.

const REQUESTS = 3;
const REPORTS = 4;
const ERRORS = 5;

const fs = require('fs');
const { types } = require('util');
const { EventEmitter } = require('events');
const { compile, prepareCells, setVariables } = require('./cell.js');
const { describe, inspectValue } = require('./errors.js');
const { snapshot, changes } = require('./files.js');
const { giveInput, takeInput } = require('./input.js');
const { Watch, terminateHere } = require('./interrupt.js');
const { defineModuleGlobals } = require('./modules.js');
const { replaceStandardStreams, writeAll } = require('./output.js');
const { NOTHING, WORK, clearTimers, hasUnlistedWork, startWork } = require('./pending.js');
const { prepareState } = require('./state.js');

const { parse, stringify } = JSON;
const { read } = fs;
const { alloc, concat, from } = Buffer;
const call = Function.prototype.call;
const indexOf = call.bind(Buffer.prototype.indexOf);
const subarray = call.bind(Buffer.prototype.subarray);
const toText = call.bind(Buffer.prototype.toString);
const indexOfText = call.bind(String.prototype.indexOf);
const leave = process.reallyExit.bind(process, 0);
const { exit } = process;
const { emit, listenerCount, listeners } = EventEmitter.prototype;
const source = call.bind(Function.prototype.toString);
const { apply } = Reflect;
const { clearTimeout, setImmediate, setTimeout } = globalThis;

const WORKDIR = process.env.SANDBOX_WORKDIR || process.cwd();
const FIGURES = process.env.SANDBOX_FIGURES;
const PAYLOAD = 4000; // With the head of a frame this is less than PIPE_BUF.
const FILES = 200;

const UNSETTLED = 13; // Node's exit code if the code waits for a promise when nothing is left to do.

let run = null;
let told = false; // that a session does not run what is left for the exit of Node

function begin(request) {
  run = {
    nonce: request.nonce,
    last: request.last === true,
    cell: null,
    waiting: false, // at the top level of the code
    done: false, // with the code itself
    timer: undefined, // until the next check
    result: null,
    left: startWork(),
    files: snapshot(WORKDIR),
    figures: FIGURES ? snapshot(FIGURES) : null,
  };
  writeAll(REPORTS, from(`\x1e${request.nonce}+0\n`));
  process.exitCode = undefined;
  watch.begin();
  watch.rest(run.last);
  evaluate(run, request);
}

async function evaluate(current, { cell, code, variables }) {
  try {
    const { __stdin: input, ...others } = variables;
    if (input !== undefined) giveInput(input);
    setVariables(others);
    const filename = `<cell ${cell}>`;
    const { run: start, hasValue, waits, columnOf } = compile(code, filename);
    current.cell = { filename, code, columnOf };
    current.waiting = waits;
    let value = start();
    if (types.isPromise(value)) {
      if (!current.last) setImmediate(() => current.done || later(current)); // Most code is done by then.
      value = await value;
    }
    current.waiting = false;
    current.result = hasValue && value !== undefined ? inspectValue(value) : null;
    settle(current);
  } catch (error) {
    if (run !== current) return;
    if (!current.cell) return fail(error); // The code did not begin.
    current.waiting = false;
    if (isHandled()) uncaught(error);
    else fail(error);
    if (run === current) settle(current);
  }
}

/** The code is done; what it started may not be. */
function settle(current) {
  clearTimeout(current.timer);
  current.done = true;
  // Node reports unhandled rejections after this turn; they belong to the run.
  if (!current.last) setImmediate(() => check(current));
}

function check(current) {
  if (run !== current) return;
  const left = current.left(watch.resting);
  if (current.done && left !== WORK && !(left === NOTHING && hasUnlistedWork())) return end({});
  watch.rest(left === NOTHING);
  later(current);
}

function later(current) {
  // Without a reference, this timer does not itself count as unfinished work.
  if (!current.last) current.timer = setTimeout(() => check(current), 2).unref();
}

/** A run ends when nothing is left to do; if it is the last, after all that Node does then. */
process.emit = function (name) {
  if (!run || (name !== 'exit' && (name !== 'beforeExit' || run.last))) return apply(emit, this, arguments);
  if (watch.interrupted()) stop(); // It ended what Node waited for.
  else if (run.waiting) {
    process.exitCode ??= UNSETTLED;
    report('Warning: Detected unsettled top-level await\n');
  }
  if (!run?.last) return run && end({});
  apply(emit, this, [name, process.exitCode ?? 0]);
  finish(process.exitCode);
};

process.reallyExit = finish; // which `process.exit` calls

function finish(code) {
  if (run) end({ exitCode: asExitCode(code) });
  leave();
}

function exitAsNode(code) {
  run.waiting = false;
  apply(exit, process, [code]);
}

/**
 * Whether code handles what it throws at its top level. Tests of `node:test` do, to the end of the session, but would
 * only count what later code throws.
 */
function isHandled() {
  const handlers = apply(listeners, process, ['uncaughtException']);
  for (let i = 0; i < handlers.length; i++) if (indexOfText(source(handlers[i]), 'rootTest') < 0) return true;
  return false;
}

function uncaught(error) {
  if (apply(listenerCount, process, ['uncaughtException']) > 0) {
    try {
      process.emit('uncaughtException', error, 'uncaughtException');
      return;
    } catch (another) {
      error = another;
    }
  }
  if (run) fail(error);
  else report(describe(error));
}

function fail(error) {
  const interrupted = watch.interrupted(types.isNativeError(error) && error.signal === 'SIGINT');
  report(describe(error, run.cell));
  if (run.last && !interrupted) return exitAsNode(1);
  clearTimers();
  end({ exitCode: 1, interrupted });
}

function stop() {
  clearTimers();
  end({ interrupted: true });
}

function report(text) {
  try {
    writeAll(2, text);
  } catch {
    // The code closed its standard error.
  }
}

function end({ exitCode = asExitCode(process.exitCode), interrupted = false }) {
  watch.end();
  watch.rest(false);
  if (interrupted) exitCode = 130;
  const { nonce, last, files, figures, result } = run;
  run = null;
  takeInput();
  const made = changes(files);
  const text =
    `{"status":"${exitCode === 0 ? 'ok' : 'error'}","exit_code":${exitCode}` +
    `,"result":${result === null ? null : stringify(wellFormed(result))}` +
    `,"interrupted":${interrupted},"files":${list(made, FILES)}` +
    `,"files_omitted":${made.length > FILES ? made.length - FILES : 0}` +
    `,"figures":${figures ? list(changes(figures), FILES) : '[]'}${last || !waits() ? '' : ',"waits":true'}}`;
  const payload = from(text);
  for (let at = 0; at < payload.length; at += PAYLOAD) {
    const part = subarray(payload, at, at + PAYLOAD);
    const kind = at + PAYLOAD < payload.length ? '+' : '.';
    writeAll(REPORTS, concat([from(`\x1e${nonce}${kind}${part.length}\n`), part]));
  }
  writeAll(ERRORS, from(`\x1e${nonce}.0\n`));
  next();
}

/** Whether the code left something for the exit of Node, the first time. */
function waits() {
  if (told) return false;
  told = apply(listenerCount, process, ['exit']) + apply(listenerCount, process, ['beforeExit']) > 0;
  return told;
}

function asExitCode(code) {
  return code === undefined || code === null ? 0 : Number(code) & 255;
}

// A lone surrogate has no UTF-8 form, so the server could not pass it on.
function wellFormed(text) {
  return toText(from(text));
}

// JSON.stringify of the whole array is not safe: code may have given arrays a toJSON.
function list(names, most) {
  let text = '';
  for (let i = 0; i < names.length && i < most; i++) text += (i ? ',' : '') + stringify(wellFormed(names[i]));
  return `[${text}]`;
}

const buffer = alloc(1 << 16);
let parts = [];

function next() {
  read(REQUESTS, buffer, 0, buffer.length, null, (error, count) => {
    if (error || count === 0) return leave();
    const chunk = from(subarray(buffer, 0, count));
    parts[parts.length] = chunk;
    if (indexOf(chunk, 10) < 0) return next();
    const line = toText(concat(parts));
    parts = [];
    begin(parse(line));
  });
}

const watch = new Watch(stop);

replaceStandardStreams();

process.setUncaughtExceptionCaptureCallback(uncaught);

process.exit = (code) => {
  if (run?.last) return exitAsNode(code);
  const current = run;
  if (code !== undefined) process.exitCode = code;
  const exitCode = asExitCode(process.exitCode);
  clearTimers();
  terminateHere(() => {
    if (run === current && run) end({ exitCode });
  });
};

const meta = defineModuleGlobals(WORKDIR);
prepareCells(meta);
prepareState(meta, WORKDIR);
next();
