// A page on the screen: its sections ask the API again every few seconds, until the page is left.

import { h, replace } from "./dom.js";

const INTERVAL = "warren-refresh-s";
const SOON_MS = 1000;
const SOON_ROUNDS = 3;
const GONE =
  "is not there: it was deleted, or you may not see it. " +
  "What is shown is what was known before; nothing more is asked until you choose Now.";
export const INTERVALS_S = [5, 30, 0];

/** Return the seconds between two refreshes; 0: none by itself. */
export function interval() {
  const kept = Number(sessionStorage.getItem(INTERVAL) ?? INTERVALS_S[0]);
  return INTERVALS_S.includes(kept) ? kept : INTERVALS_S[0];
}

/** Set the seconds between two refreshes. */
export function setSeconds(seconds) {
  sessionStorage.setItem(INTERVAL, String(seconds));
}

/** Return the text of an error for the user; a fault of these pages is logged, too. */
export function shownError(error) {
  if (error.name !== "Error") {
    console.error(error);
  }
  return error.message;
}

/** A page. `place` holds its elements; `leave` ends what it does. */
export class View {
  constructor(title) {
    this.notice = h("p", { class: "notice", role: "status" });
    this.place = h("div", { class: "page" }, h("h1", { tabindex: "-1" }, title), this.notice);
    this.abort = new AbortController();
    this.sections = [];
    this.timer = 0;
    this.running = null;
    this.again = false;
    this.soon = 0;
    this.what = "";
    this.over = false;
  }

  /** Say what the page is of: when that is not there any more, nothing is asked by itself. */
  about(what) {
    this.what = what;
    return this;
  }

  /** Add elements that stay as they are. */
  add(...children) {
    this.place.append(h("div", { class: "still" }, children));
    return this;
  }

  /**
   * Add a section: `load(signal)` asks the API, `render(found)` returns what to show of it.
   * still: it is not asked for by itself
   */
  live(load, render, title, { still = false } = {}) {
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    const content = h("div", { class: "content" }, h("p", { class: "quiet" }, "Loading …"));
    const heading = title ? h("h2", {}, title) : null;
    this.place.append(h("section", {}, heading, problem, content));
    this.sections.push({ load, render, problem, content, still });
    return this;
  }

  /** Begin to ask. */
  start() {
    this.refresh();
    return this;
  }

  /** Ask now; what is asked already is asked once more afterwards. */
  async refresh(byItself = false) {
    if (this.running) {
      this.again = true;
      return this.running;
    }
    clearTimeout(this.timer);
    this.over = false;
    this.running = this.round(byItself);
    await this.running;
    this.running = null;
    if (this.abort.signal.aborted) {
      return undefined;
    }
    if (this.again) {
      this.again = false;
      return this.refresh();
    }
    this.wait();
    return undefined;
  }

  /** Ask now and a few times soon after: what was done takes effect within seconds. */
  changed() {
    this.soon = SOON_ROUNDS;
    return this.refresh();
  }

  wait() {
    clearTimeout(this.timer);
    const pause = this.soon > 0 ? SOON_MS : interval() * 1000;
    this.soon = Math.max(0, this.soon - 1);
    if (pause && !this.over && !this.abort.signal.aborted) {
      const due = () => (document.hidden ? this.wait() : this.refresh(true));
      this.timer = setTimeout(due, pause);
    }
  }

  async round(byItself) {
    for (const section of this.sections) {
      if (!this.abort.signal.aborted && !this.over && !(byItself && section.still)) {
        await this.ask(section);
      }
    }
  }

  /** Show what the API answers; when it refuses, say so above what was shown before. */
  async ask({ load, render, problem, content }) {
    try {
      const found = await load(this.abort.signal);
      if (this.abort.signal.aborted) {
        return;
      }
      replace(content, render(found));
      problem.hidden = true;
      problem.textContent = "";
    } catch (error) {
      if (error.name === "AbortError" || this.abort.signal.aborted) {
        return;
      }
      if (content.querySelector(".quiet")) {
        content.replaceChildren();
      }
      this.over = error.status === 404 && this.what !== "";
      const text = this.over ? `${this.what} ${GONE}` : shownError(error);
      if (problem.textContent !== text) {
        problem.textContent = text; // once: it is read out to users that cannot see it
      }
      problem.hidden = false;
      if (error.status === 401 && error.permitted) {
        window.dispatchEvent(new CustomEvent("login-refused", { detail: text }));
      }
    }
  }

  /** Tell the user that something was done, or failed. */
  say(text, failed = false) {
    this.notice.className = failed ? "notice problem" : "notice";
    this.notice.textContent = text;
  }

  /** Leave the page: requests under way are given up. */
  leave() {
    clearTimeout(this.timer);
    this.abort.abort();
  }
}
