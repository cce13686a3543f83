'use strict';

// The protocol is in ../README.md. handler.toml starts this file with an empty standard input and with duplicates of the
// three standard streams as the descriptors below, because Node cannot duplicate a descriptor. Node hides descriptors above
// 2 from children. Everything that the loop needs after user code ran is bound here: code may replace any global.

const REQUESTS = 3;
const REPORTS = 4;
const ERRORS = 5;

const fs = require('fs');
const { types } = require('util');
const { compile } = require('./cell.js');
const { describe, inspectValue } = require('./errors.js');
const { snapshot, changes } = require('./files.js');
const { giveInput, takeInput } = require('./input.js');
const { Watch } = require('./interrupt.js');
const { defineModuleGlobals } = require('./modules.js');
const { replaceStandardStreams, writeAll } = require('./output.js');
const { clearTimers, settled } = require('./pending.js');

const { parse, stringify } = JSON;
const { read } = fs;
const { alloc, concat, from } = Buffer;
const call = Function.prototype.call;
const indexOf = call.bind(Buffer.prototype.indexOf);
const subarray = call.bind(Buffer.prototype.subarray);
const toText = call.bind(Buffer.prototype.toString);
const leave = process.reallyExit.bind(process, 0);
const { setImmediate } = globalThis;

const WORKDIR = process.env.SANDBOX_WORKDIR || process.cwd();
const FIGURES = process.env.SANDBOX_FIGURES;
const PAYLOAD = 4000; // With the head of a frame this is less than PIPE_BUF.
const FILES = 200;

class Exit extends Error {
  constructor(code) {
    super(`process.exit(${code})`);
    this.name = 'Exit';
  }
}

let run = null;

function begin(request) {
  run = {
    nonce: request.nonce,
    exitCode: null,
    settled: settled(),
    files: snapshot(WORKDIR),
    figures: FIGURES ? snapshot(FIGURES) : null,
  };
  writeAll(REPORTS, from(`\x1e${request.nonce}+0\n`));
  process.exitCode = undefined;
  watch.begin();
  evaluate(run, request);
}

async function evaluate(current, { cell, code, variables }) {
  try {
    const { __stdin: input, ...others } = variables;
    if (input !== undefined) giveInput(input);
    for (const name in others) globalThis[name] = others[name];
    const { script, hasValue } = compile(code, `<cell ${cell}>`);
    let value = script.runInThisContext();
    if (types.isPromise(value)) value = await value;
    const shown = hasValue && value !== undefined ? inspectValue(value) : null;
    // Node reports unhandled rejections after this turn; they belong to the run.
    const check = () => {
      if (run !== current) return;
      if (current.settled()) end({ result: shown });
      else later(check);
    };
    setImmediate(check);
  } catch (error) {
    if (run === current) fail(error);
  }
}

const later = (() => {
  const { setTimeout } = globalThis;
  // Without a reference, this timer does not itself count as unfinished work.
  return (check) => setTimeout(check, 2).unref();
})();

function fail(error) {
  clearTimers();
  if (!(error instanceof Exit)) {
    run.exitCode ??= 1;
    report(error);
  }
  end({ interrupted: watch.interrupted(types.isNativeError(error) && error.signal === 'SIGINT') });
}

function report(error) {
  try {
    writeAll(2, describe(error));
  } catch {
    // The code closed its standard error.
  }
}

function end({ result = null, interrupted = false }) {
  watch.end();
  const { nonce, files, figures } = run;
  const exitCode = interrupted ? 130 : run.exitCode ?? asExitCode(process.exitCode);
  run = null;
  takeInput();
  const made = changes(files);
  const text =
    `{"status":"${exitCode === 0 ? 'ok' : 'error'}","exit_code":${exitCode}` +
    `,"result":${result === null ? null : stringify(wellFormed(result))}` +
    `,"interrupted":${interrupted},"files":${list(made, FILES)}` +
    `,"files_omitted":${made.length > FILES ? made.length - FILES : 0}` +
    `,"figures":${figures ? list(changes(figures), FILES) : '[]'}}`;
  const payload = from(text);
  for (let at = 0; at < payload.length; at += PAYLOAD) {
    const part = subarray(payload, at, at + PAYLOAD);
    const kind = at + PAYLOAD < payload.length ? '+' : '.';
    writeAll(REPORTS, concat([from(`\x1e${nonce}${kind}${part.length}\n`), part]));
  }
  writeAll(ERRORS, from(`\x1e${nonce}.0\n`));
  next();
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

const watch = new Watch(() => {
  clearTimers();
  end({ interrupted: true });
});

replaceStandardStreams();

process.setUncaughtExceptionCaptureCallback((error) => {
  if (process.listenerCount('uncaughtException') > 0) process.emit('uncaughtException', error, 'uncaughtException');
  else if (run) fail(error);
  else if (!(error instanceof Exit)) report(error);
});

process.exit = (code) => {
  const exitCode = asExitCode(code === undefined ? process.exitCode : code);
  if (run) run.exitCode = exitCode;
  throw new Exit(exitCode);
};

defineModuleGlobals(WORKDIR);
next();
