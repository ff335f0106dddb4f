export const CHROMIUM_HELP: string;
export function findChromium(): string | undefined;
export function getChromium(print?: (line: string) => void): string | undefined;
