'use strict';

// Prints packages as name==version, in a fifth of the time that `npm ls` takes:
//   packages.js asked FOLDER   packages that were requested for the folder by name
//   packages.js all FOLDER     those packages and their dependencies
//   packages.js given          packages that the system has for all sessions
// or installs packages, as npm looks even for those that are there:
//   packages.js install FOLDER COMMAND... -- NAME...   runs the command for the names that are neither asked nor given
// If a package calls itself by another name than the index does, there is a line for each name: rules check both.

const { spawnSync } = require('child_process');
const fs = require('fs');
const { join } = require('path');

const [which, folder, ...words] = process.argv.slice(2);

function read(place) {
  try {
    return JSON.parse(fs.readFileSync(join(place, 'package.json'), 'utf8'));
  } catch {
    return {};
  }
}

/** The names of the folders in a folder, without links, because code can make circles of links. */
function folders(place) {
  if (!fs.lstatSync(place, { throwIfNoEntry: false })?.isDirectory()) return [];
  const entries = fs.readdirSync(place, { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name).sort();
}

/** The names of the packages directly in a node_modules folder. */
function packages(modules) {
  const inner = (name) => folders(join(modules, name)).map((part) => `${name}/${part}`);
  return folders(modules).flatMap((name) => (name.startsWith('@') ? inner(name) : [name]));
}

function print(modules, name) {
  const { name: own = name, version } = read(join(modules, name));
  if (version) for (const each of new Set([name, own])) console.log(`${each}==${version}`);
}

function printAll(modules) {
  for (const name of packages(modules)) {
    print(modules, name);
    printAll(join(modules, name, 'node_modules'));
  }
}

const asked = () => Object.keys(read(folder).dependencies ?? {});

/** The node_modules folders of the system. */
function given() {
  const own = join(process.env.SANDBOX_LIBRARIES, 'node_modules');
  return process.env.NODE_PATH.split(':').filter((modules) => modules !== own);
}

if (which === 'asked') {
  for (const name of asked()) print(join(folder, 'node_modules'), name);
} else if (which === 'all') {
  printAll(join(folder, 'node_modules'));
} else if (which === 'given') {
  for (const modules of given()) for (const name of packages(modules)) print(modules, name);
} else {
  const [own, others, names] = [asked(), given(), words.indexOf('--') + 1];
  // A name with a version is not found there, and npm decides about it.
  const there = (name) => own.includes(name) || others.some((modules) => read(join(modules, name)).version);
  const missing = words.slice(names).filter((name) => !there(name));
  if (missing.length) {
    const bin = join(folder, 'bin'); // where npx looks for programs, below npm's prefix
    fs.mkdirSync(folder, { recursive: true });
    if (!fs.lstatSync(bin, { throwIfNoEntry: false })) fs.symlinkSync('node_modules/.bin', bin);
    process.exitCode = spawnSync(words[0], [...words.slice(1, names), ...missing], { stdio: 'inherit' }).status ?? 1;
  }
}
