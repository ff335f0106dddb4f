/** The page's icons: 24 by 24, drawn with strokes. Always beside or inside something that has a name. */
const PATHS = {
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14M20 20l-4-4",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M8 8h8v8H8z",
  attach: "M20 11.5l-8 8a5 5 0 0 1-7-7l8.5-8.5a3.4 3.4 0 0 1 4.8 4.8l-8.4 8.4a1.7 1.7 0 0 1-2.4-2.4l7.6-7.6",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  edit: "M4 20h4L19 9a2.1 2.1 0 0 0-4-4L4 16zM13.5 6.5l4 4",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12M10.5 11v5M13.5 11v5",
  copy: "M9 9h10v10H9zM15 9V5H5v10h4",
  check: "M5 12.5l4.5 4.5L19 7.5",
  retry: "M19.5 12a7.5 7.5 0 1 1-2.3-5.4M19.5 4v4h-4",
  up: "M7 11v8H4v-8zM7 11l4-7a2.2 2.2 0 0 1 2.2 2.6L12.6 10H18a2 2 0 0 1 2 2.4l-1.2 5.2A2 2 0 0 1 16.9 19H7",
  down: "M17 13V5h3v8zM17 13l-4 7a2.2 2.2 0 0 1-2.2-2.6l.6-3.4H6a2 2 0 0 1-2-2.4l1.2-5.2A2 2 0 0 1 7.1 5H17",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  sliders: "M4 8h9M17 8h3M15 6v4M4 16h3M11 16h9M9 14v4",
  book: "M5 5.5A1.5 1.5 0 0 1 6.5 4H19v13H6.5A1.5 1.5 0 0 0 5 18.5v-13zM5 18.5A1.5 1.5 0 0 0 6.5 20H19v-3",
  file: "M7 3h7l4 4v14H7zM14 3v4h4",
  link: "M10 14a4 4 0 0 0 6 .5l2.5-2.5a4 4 0 0 0-5.6-5.7L11.5 7.6M14 10a4 4 0 0 0-6-.5L5.5 12a4 4 0 0 0 5.6 5.7l1.4-1.3",
  text: "M5 6h14M5 10h14M5 14h14M5 18h8",
  sun: "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8M12 3v1.5M12 19.5V21M4.5 12H3M21 12h-1.5M6.7 6.7L5.6 5.6M18.4 18.4l-1.1-1.1M6.7 17.3l-1.1 1.1M18.4 5.6l-1.1 1.1",
  moon: "M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5z",
  keyboard: "M4 7h16v10H4zM7.5 10.5h.01M11 10.5h.01M14.5 10.5h.01M8 14h8",
  offline:
    "M4 4l16 16M9 16a4.2 4.2 0 0 1 6 0M12 19.5h.01M6 12.8a8.5 8.5 0 0 1 3.5-2M2.8 9.300a13 13 0 0 1 3.200-2.200M13.5 10.5a8.5 8.5 0 0 1 4.5 2.300M10 6a13 13 0 0 1 11.200 3.300",
  arrowDown: "M12 5v14M6 13l6 6 6-6",
  lock: "M6 11h12v9H6zM9 11V8a3 3 0 0 1 6 0v3",
  clock: "M12 4a8 8 0 1 1 0 16 8 8 0 0 1 0-16M12 8v4.5l3 1.8",
  info: "M12 4a8 8 0 1 1 0 16 8 8 0 0 1 0-16M12 11v5M12 8h.01",
  warn: "M12 4.5l8.5 15h-17zM12 10v4M12 16.8h.01",
  signOut: "M10 5H5v14h5M14 8l4 4-4 4M18 12H9",
  external: "M13 5h6v6M19 5l-8 8M10 6H5v13h13v-5",
  wrap: "M4 6h16M4 12h13a3 3 0 0 1 0 6h-4M15 15.5l-2.5 2.5 2.5 2.5M4 18h4",
  chevron: "M6 9.5l6 6 6-6",
  download: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  columns: "M4 5h7v14H4zM13 5h7v14h-7z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
