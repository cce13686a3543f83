'use strict';

// The report of what was saved or opened: lines with fields that are separated by tabs.

const LINES = 500;
const FIELD = 200;

class Report {
  constructor({ fs }, folder) {
    this.fs = fs;
    this.path = `${folder}/report`;
    this.lost = [];
    this.notes = [];
  }

  lose(name, type, reason) {
    this.lost.push(line('lost', name, type, reason));
  }

  note(text) {
    this.notes.push(line('note', text));
  }

  write(kept) {
    const { length } = this.lost;
    if (length > LINES) this.note(`${length - LINES} more are lost`);
    const text = [...this.lost.slice(0, LINES), ...this.notes, line('kept', String(kept))].join('');
    this.fs.writeFileSync(`${this.path}.new`, text);
    this.fs.renameSync(`${this.path}.new`, this.path);
  }
}

function line(...fields) {
  return `${fields.map((field) => field.replace(/[\x00-\x1f\x7f-\x9f\u2028\u2029]/g, ' ').slice(0, FIELD)).join('\t')}\n`;
}

module.exports = { Report };
