'use strict';

// Opens what save.js saved, in an interpreter that has run no code yet.

const { Making } = require('./making.js');
const { Report } = require('./report.js');
const { kindOf } = require('./kinds.js');

const EVERYTHING = '(all variables)';

async function open(host, folder) {
  const { fs, process } = host;
  const report = new Report(host, folder);
  const steps = new Steps(fs, folder);
  if (steps.deadly.has(EVERYTHING)) return refuse('opening it ended the interpreter');
  let saved;
  try {
    steps.begin(EVERYTHING);
    saved = host.v8.deserialize(fs.readFileSync(`${folder}/values`));
  } catch (error) {
    return refuse(error.message);
  }
  if (saved.node !== process.version) report.note(`saved by Node ${saved.node}, opened by ${process.version}`);
  setModes(saved, host, report);
  const { roots } = saved;
  const setters = host.adopt(roots.filter(({ spelling }) => spelling !== null));
  let number = 0;
  for (const root of roots) {
    const { name, spelling } = root;
    if (spelling !== null) root.set = setters[number++];
    else root.set = (value) => void (host.global[name] = value);
  }
  const making = new Making(host, folder, saved, steps);
  await making.all();
  let kept = 0;
  for (const { name, value, set } of roots) {
    const reason = making.failed.get(value);
    if (reason !== undefined) report.lose(name, making.kinds.get(value) ?? typeof value, reason);
    else {
      set(making.value(value));
      kept++;
    }
  }
  for (const missing of making.missing) report.lose(...missing);
  steps.end();
  report.write(kept);

  function refuse(reason) {
    report.lose(EVERYTHING, 'javascript', reason);
    steps.end();
    report.write(0);
  }
}

function setModes({ environment, folder }, { process }, report) {
  for (const [name, value] of environment) {
    if (value === null) delete process.env[name];
    else process.env[name] = value;
  }
  if (folder === null) return;
  try {
    process.chdir(folder);
  } catch {
    report.note(`the working directory ${folder} does not exist`);
  }
}

/** Knows at which variable an earlier try ended the interpreter. */
class Steps {
  constructor(fs, folder) {
    Object.assign(this, { fs, opening: `${folder}/opening`, last: null });
    const path = `${folder}/deadly`;
    const read = (name) => (fs.existsSync(name) ? fs.readFileSync(name, 'utf8').split('\n').filter(Boolean) : []);
    const names = read(this.opening);
    if (names.length) fs.appendFileSync(path, `${names[0]}\n`);
    this.deadly = new Set(read(path));
  }

  begin(name) {
    if (name === this.last) return;
    this.last = name;
    this.fs.writeFileSync(this.opening, `${name}\n`);
  }

  end() {
    this.fs.rmSync(this.opening, { force: true });
  }
}

module.exports = { open };
