// Builds the page from src into dist, with all that it needs. `make page` runs it.
import { createHash } from "node:crypto";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as esbuild from "esbuild";

process.chdir(import.meta.dirname);

// xterm writes styles as attributes, which the page's Content-Security-Policy refuses. The same by CSSOM is allowed.
const withoutStyleAttributes = {
  name: "without-style-attributes",
  setup(build) {
    build.onLoad({ filter: /@xterm[/\\]xterm[/\\]lib[/\\]xterm\.mjs$/ }, async ({ path }) => {
      const from = 't.setAttribute("style",`${t.getAttribute("style")||""}${e};`)';
      const text = await readFile(path, "utf8");
      if (text.split(from).length !== 2 || text.split('setAttribute("style"').length !== 2) {
        throw new Error(`${path}: xterm sets style attributes at other places than it did: look at each`);
      }
      return { contents: text.replace(from, "t.style.cssText+=e"), loader: "js" };
    });
  },
};

await rm("dist", { recursive: true, force: true });
await mkdir("dist/assets", { recursive: true });
const result = await esbuild.build({
  entryPoints: ["src/app.ts", "src/app.css"],
  bundle: true, minify: true, splitting: true, format: "esm", target: "es2022", metafile: true,
  outdir: "dist/assets", chunkNames: "[name]", legalComments: "none", logLevel: "warning",
  plugins: [withoutStyleAttributes],
});
await cp("src/index.html", "dist/index.html");

// The licences of the packages of which something is in the bundle.
const packages = new Set();
for (const input of Object.keys(result.metafile.inputs)) {
  const found = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (found) packages.add(found[1]);
}
const licences = [];
for (const name of [...packages].sort()) {
  const root = join("node_modules", name), about = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const file = (await readdir(root)).find(f => /^licen[cs]e/i.test(f));
  if (!file) throw new Error(`${root}: there is no licence`);
  licences.push(`${name} ${about.version} (${about.license})\n\n${(await readFile(join(root, file), "utf8")).trim()}\n`);
}
await writeFile("dist/LICENSES.txt", licences.join(`\n${"-".repeat(80)}\n\n`));

// The sums of all sources: a test compares them with the sources, so that nobody forgets to build.
const sources = ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"];
for (const file of await readdir("src", { recursive: true, withFileTypes: true })) {
  if (file.isFile()) sources.push(join(file.parentPath, file.name));
}
const sums = [];
for (const path of sources.sort()) sums.push(`${createHash("sha256").update(await readFile(path)).digest("hex")}  ${path}\n`);
await writeFile("dist/SOURCES.sha256", sums.join(""));
