/** The names that were probably meant, nearest first: at most three, and only near ones. */
export function similarNames(wanted: string, names: readonly string[]): string[] {
  const target = wanted.toLowerCase();
  const limit = Math.max(2, Math.floor(target.length / 3));
  return names
    .map((name) => ({ name, distance: distanceTo(target, name.toLowerCase()) }))
    .filter(({ distance }) => distance <= limit)
    .sort((a, b) => a.distance - b.distance || a.name.localeCompare(b.name))
    .slice(0, 3)
    .map(({ name }) => name);
}

/** A name that contains the other is near; else the number of letters to change (Levenshtein). */
function distanceTo(target: string, name: string): number {
  if (target.length > 2 && (name.includes(target) || target.includes(name))) return 1;
  let row = Array.from({ length: name.length + 1 }, (_, index) => index);
  for (let i = 1; i <= target.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= name.length; j += 1) {
      const change = row[j - 1]! + (target[i - 1] === name[j - 1] ? 0 : 1);
      next.push(Math.min(change, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[name.length]!;
}
