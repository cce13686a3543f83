// Searches in the site as a browser does that has opened a page as a file: reads files only, and runs the scripts of the page.
// The arguments are the page and the words; the addresses of what was found are printed as JSON.
const { readFileSync } = require("fs");
const { dirname, resolve } = require("path");
const vm = require("vm");

const [page, words] = process.argv.slice(2);
const html = readFileSync(page, "utf8");
const config = JSON.parse(/<script id="__config"[^>]*>(.+?)<\/script>/.exec(html)[1]);
const [shim] = /(?<=<script src=")[^"]*worker[^"]*/.exec(html);

// What the scripts use of a window, which refuses to start a worker from a file.
function open(parent) {
  const events = new EventTarget();
  const window = { console, EventTarget, MessageEvent, URL, location: { protocol: "file:" } };
  window.addEventListener = events.addEventListener.bind(events);
  window.dispatchEvent = events.dispatchEvent.bind(events);
  window.Worker = class { constructor(script) { throw new Error(`a worker cannot be a file: ${script}`); } };
  window.run = path => vm.runInContext(readFileSync(resolve(dirname(page), path), "utf8"), window);
  const append = element => {
    if (!element.src) return;
    window.document.querySelector = () => element;
    window.run(element.src);
    element.onload();
  };
  const createElement = name => name === "iframe" ? { contentWindow: open(window) } : {};
  window.document = { createElement, body: { append }, head: { append } };
  Object.assign(window, { window, self: window, parent: parent ?? window });
  return vm.createContext(window);
}

const window = open();
window.run(shim);
window.run(`${config.base}/search/search_index.js`);
const worker = vm.runInContext(`new Worker(${JSON.stringify(config.search)})`, window);
const index = vm.runInContext("__index", window);
worker.addEventListener("message", ({ data: { type, data } }) => {
  if (type === 1) worker.postMessage({ type: 2, data: words });
  else console.log(JSON.stringify(data.items.flat().map(item => item.location)));
});
worker.postMessage({ type: 0, data: { config: index.config, docs: index.docs, options: {} } });
