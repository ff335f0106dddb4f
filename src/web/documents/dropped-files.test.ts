import { expect, it } from "vitest";
import { droppedFiles } from "./dropped-files.js";

const file = (name: string) => ({
  name,
  isFile: true,
  isDirectory: false,
  file: (done: (file: File) => void) => done(new File(["x"], name)),
});

/** Gives its children two at a time, as browsers give a hundred. */
const folder = (name: string, children: readonly object[]) => ({
  name,
  isFile: false,
  isDirectory: true,
  createReader: () => {
    let at = 0;
    return { readEntries: (done: (some: readonly object[]) => void) => done(children.slice(at, (at += 2))) };
  },
});

function drop(entries: readonly object[]): Pick<DataTransfer, "items" | "files"> {
  const items = entries.map((entry) => ({ webkitGetAsEntry: () => entry }));
  const files = [new File(["x"], "as it was dropped")];
  return { items, files } as unknown as DataTransfer;
}

it("reads folders to their bottom, in order, without what is hidden or cannot be read", async () => {
  const deep = folder("deep", [file("z.pdf"), file("a.html"), file("b.txt"), file(".c.md")]);
  const dropped = drop([
    folder("notes", [file("picture.png"), deep, folder(".git", [file("x.md")])]),
    file("what.bin"),
  ]);
  expect((await droppedFiles(dropped)).map(({ name }) => name)).toEqual([
    "a.html",
    "b.txt",
    "z.pdf",
    "what.bin",
  ]);
});

it("takes files as they are where no folder is among them", async () => {
  expect((await droppedFiles(drop([file("a.md")]))).map(({ name }) => name)).toEqual(["as it was dropped"]);
});
