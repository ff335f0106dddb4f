export function serveHarness(): Promise<{ readonly origin: string; readonly close: () => Promise<void> }>;
