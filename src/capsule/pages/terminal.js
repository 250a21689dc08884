// Keys go to the dashboard as soon as there is one, not only after a click.
new MutationObserver((_changes, observer) => {
  if (document.body.classList.contains("-first-byte")) {
    observer.disconnect();
    document.querySelector(".xterm-helper-textarea").focus();
  }
}).observe(document.documentElement, { subtree: true, attributeFilter: ["class"] });
