// Updates the parts of a page that change, [data-live], when the server reports that a store has changed. A part that
// the user edits, or in which text is selected, is not updated until that ends. Pages also work without this script.
"use strict";
(() => {
  const script = document.currentScript, told = document.getElementById("told");
  const tell = (text) => {
    const note = document.getElementById("connection");
    note.textContent = text;
    note.hidden = !text;
  };
  const parts = () => [...document.querySelectorAll("[data-live]")];
  const inputs = (part) => [...part.querySelectorAll("input:not([type=hidden]), textarea, select")];
  const isEdited = (field) =>
    field.type === "checkbox" ? field.checked !== field.defaultChecked
      : field.tagName === "SELECT" ? field.selectedIndex !== Math.max(0, [...field.options].findIndex((each) => each.defaultSelected))
      : field.value !== field.defaultValue;
  const isBusy = (part) => {
    const at = document.activeElement, marked = getSelection();
    return (part.contains(at) && at.matches("input, textarea, select")) || inputs(part).some(isEdited)
      || (!marked.isCollapsed && part.contains(marked.anchorNode));
  };
  const replace = (part, fresh) => {
    const at = document.activeElement, target = part.contains(at) && (at.getAttribute("href") || at.textContent);
    const open = [...part.querySelectorAll("details")].map((each) => [each.querySelector("summary").firstChild.textContent, each.open]);
    part.replaceWith(fresh);
    for (const each of fresh.querySelectorAll("details")) {
      const was = open.find(([text]) => text === each.querySelector("summary").firstChild.textContent);
      if (was) each.open = was[1];
    }
    if (target) [...fresh.querySelectorAll("a, button, summary, pre")].find((each) => (each.getAttribute("href") || each.textContent) === target)?.focus();
    const news = fresh.querySelector("h1, [role=status]");
    if (news && fresh.id !== "live") told.textContent = news.textContent;
  };
  let due = false, running = false;
  const refresh = async () => {
    due = true;
    if (running || document.hidden || !parts().length) return;
    running = true;
    due = false;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const isAway = page.querySelector("[data-live=all]");
      tell(isAway ? "The store is unavailable. Your input is not lost; this page continues automatically once the store is available." : "");
      if (isAway || document.querySelector("[data-live=all]")) {
        if (parts().some(isBusy)) due = true;
        else document.getElementById("main").replaceWith(page.getElementById("main"));
      } else {
        for (const part of parts()) {
          const fresh = page.getElementById(part.id);
          if (fresh && fresh.innerHTML === part.dataset.was) continue;
          if (fresh && isBusy(part)) due = true;
          else if (fresh) { const was = fresh.innerHTML; replace(part, fresh); fresh.dataset.was = was; }
        }
        const token = page.querySelector("input[name=token]")?.value; // a new token after a restart of the console
        if (token) for (const each of document.querySelectorAll("input[name=token]")) each.value = token;
      }
    } catch { due = true; }
    running = false;
  };

  // Changed fields show their old value.
  document.addEventListener("input", (event) => {
    const field = event.target.closest(".field");
    if (!field) return;
    const edited = [...field.querySelectorAll("input:not([type=hidden]), textarea, select")].find(isEdited);
    field.classList.toggle("is-changed", Boolean(edited));
    field.querySelector(".was")?.remove();
    const about = field.querySelector(".about");
    if (edited && about && edited.type !== "checkbox" && edited.tagName !== "SELECT") {
      const was = document.createElement("span");
      was.className = "was";
      was.textContent = ` was ${edited.defaultValue.length > 40 ? `${edited.defaultValue.slice(0, 40)}…` : edited.defaultValue || "empty"}`;
      about.append(was);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
    event.preventDefault();
    document.getElementById("search")?.focus();
  });

  if (!parts().length || !window.EventSource) return;
  const events = new EventSource(script.dataset.events);
  let wasAway = false;
  events.addEventListener("changed", refresh);
  events.addEventListener("away", refresh);
  events.onerror = () => {
    wasAway = true;
    tell("The console does not respond. Your input is not lost; this page continues automatically once it responds.");
  };
  events.onopen = () => {
    if (wasAway) refresh();
    wasAway = false;
  };
  setInterval(() => { if (due) refresh(); }, 1000);
  for (const part of parts()) if (part.dataset.every) setInterval(refresh, part.dataset.every * 1000);
})();
