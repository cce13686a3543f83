'use strict';

// Finds regular files that appeared or changed below a folder, by their inode, size and modification time.

const fs = require('fs');

const { lstatSync, readdirSync } = fs;
const ENTRIES = 10000;
const QUIET = { throwIfNoEntry: false };
const LISTING = { withFileTypes: true };

function snapshot(root) {
  const seen = Object.create(null);
  const folders = [''];
  let visited = 0;
  for (let i = 0; i < folders.length; i++) {
    const folder = folders[i];
    let entries;
    try {
      entries = readdirSync(`${root}/${folder}`, LISTING);
    } catch {
      continue;
    }
    for (let k = 0; k < entries.length; k++) {
      if (++visited > ENTRIES) return { root, seen };
      const entry = entries[k];
      const { name } = entry;
      if (name[0] === '.' || name === 'node_modules' || name === '__pycache__') continue;
      const relative = folder ? `${folder}/${name}` : name;
      if (entry.isDirectory()) folders[folders.length] = relative;
      else if (entry.isFile()) {
        const stat = lstatSync(`${root}/${relative}`, QUIET);
        if (stat) seen[relative] = `${stat.ino} ${stat.size} ${stat.mtimeMs}`;
      }
    }
  }
  return { root, seen };
}

/** Names of the files that are new or changed since the snapshot. */
function changes({ root, seen: before }) {
  const { seen: after } = snapshot(root);
  const names = [];
  for (const name in after) if (after[name] !== before[name]) names[names.length] = name;
  return names;
}

module.exports = { snapshot, changes };
