// Prints how a host starts an unpacked bundle, as the official package for hosts resolves it: resolve.mjs PACKAGE FOLDER SETTINGS
import { readFileSync } from "node:fs";
import { homedir } from "node:os";

const [location, folder, settings] = process.argv.slice(2);
const { getMcpConfigForManifest } = await import(location);
const started = await getMcpConfigForManifest({
  manifest: JSON.parse(readFileSync(`${folder}/manifest.json`, "utf8")),
  extensionPath: folder,
  systemDirs: { HOME: homedir() },
  userConfig: JSON.parse(settings),
  pathSeparator: "/",
});
console.log(JSON.stringify(started));
