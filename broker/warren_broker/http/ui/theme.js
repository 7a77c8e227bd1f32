// Light or dark: as the system says, or as the user has chosen in this browser.

const KEPT = "warren-theme";
/** What may be chosen: value and text. */
export const THEMES = [
  ["", "as the system's"],
  ["light", "light"],
  ["dark", "dark"],
];

/** Return what was chosen; "": as the system says. */
export function theme() {
  const kept = localStorage.getItem(KEPT) ?? "";
  return THEMES.some(([value]) => value === kept) ? kept : "";
}

/** Use a theme, also when this browser comes back. */
export function chooseTheme(value) {
  localStorage.setItem(KEPT, value);
  applyTheme();
}

/** Use the theme that was chosen. */
export function applyTheme() {
  const root = document.documentElement;
  if (theme() === "") {
    delete root.dataset.theme;
  } else {
    root.dataset.theme = theme();
  }
}

applyTheme();
