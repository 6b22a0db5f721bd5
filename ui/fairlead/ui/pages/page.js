// What pages do better with scripts: times in the reader's own zone with how far away they are, a button that copies a command, and the key / for the search.
(() => {
  const units = [["d", 86400], ["h", 3600], ["m", 60]];
  const age = seconds => {
    const [unit, size] = units.find(([, size]) => seconds >= 2 * size) ?? ["s", 1];
    return Math.floor(seconds / size) + unit;
  };
  const shown = at => {
    const day = at.toDateString() === new Date().toDateString() ? {} : { day: "numeric", month: "short" };
    const away = Math.round((at - Date.now()) / 1000);
    const near = Math.abs(away) < 1 ? "now" : away < 0 ? age(-away) + " ago" : "in " + age(away);
    return at.toLocaleString([], { ...day, hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }) + " (" + near + ")";
  };
  const clock = at => at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const tell = () => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const text = (time.className === "clock" ? clock : shown)(new Date(time.dateTime));
      if (time.textContent !== text) {
        time.title = time.dateTime;
        time.textContent = text;
      }
    }
  };
  const offer = () => {
    for (const code of document.querySelectorAll(".copy > code:only-child")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.onclick = () => navigator.clipboard.writeText(code.textContent).then(() => { button.textContent = "Copied"; });
      code.after(button);
    }
  };
  addEventListener("keydown", event => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const field = document.querySelector("input[name=q]");
    event.preventDefault();
    if (field) field.focus(); else location.href = "/search";
  });
  const all = () => { tell(); offer(); };
  all();
  setInterval(tell, 1000);
  new MutationObserver(all).observe(document.body, { childList: true, characterData: true, subtree: true });
})();
